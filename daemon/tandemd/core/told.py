"""What processes were told last, and the difference to what they must be told now.

Settings are told when jobs change, memory limits also in between. Gates follow turns, and exemption
from presence follows what a tier is owed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from itertools import chain
from operator import attrgetter

from tandemd.core.events import Action, CloseGates, OpenGates, SetHonourPresence
from tandemd.core.memory.line import MemoryLine
from tandemd.core.model import Group, Options
from tandemd.core.policies.policy import Policy
from tandemd.core.settings import Settings, Views, memory_limit, settings_for
from tandemd.core.turns.rings import Ring
from tandemd.core.turns.turns import Turns, Verdict


class Told:
    """The last told state of every process. Belongs to the scheduler."""

    def __init__(self) -> None:
        self.settings: dict[int, Settings] = {}  # process -> settings
        self.gates: dict[int, bool] = {}  # process -> open
        self._overdue: set[tuple[Ring, int]] = set()  # ring, tier
        self._bold: set[int] = set()  # told not to honour presence

    def come(self, process_id: int) -> None:
        """Add a process; a fresh command page has its gate open."""
        self.gates[process_id] = True

    def gone(self, process_id: int) -> None:
        """Drop a process."""
        self.settings.pop(process_id, None)
        self.gates.pop(process_id, None)

    def tell_limits(self, groups: Iterable[Group], line: MemoryLine) -> Iterator[Action]:
        """Tell changed memory limits only."""
        for group in groups:
            for process_id, process in group.processes.items():
                old = self.settings[process_id]
                limit_bytes = memory_limit(process, group, line)
                if limit_bytes != old.memory_limit_bytes:
                    new = self.settings[process_id] = replace(old, memory_limit_bytes=limit_bytes)
                    yield from new.changes_from(old, process_id)

    def tell_settings(
        self,
        rings: Iterable[list[Group]],
        line: MemoryLine,
        policy: Policy,
        options: Options,
    ) -> Iterator[Action]:
        """Tell all changed settings to the members of each ring."""
        for members in rings:
            views = Views(members, policy=policy, options=options, line=line)
            for group in members:
                for process_id, settings in settings_for(group, views, options=options):
                    old = self.settings.get(process_id)
                    if settings != old:
                        yield from settings.changes_from(old, process_id)
                        self.settings[process_id] = settings

    def tell_honour(
        self, turns: Mapping[Ring, Turns], living: Set[int], *, whole: bool
    ) -> Iterator[Action]:
        """Tell which processes need not yield to presence: those of tiers that are owed time.

        Separate from the settings, because it changes while the jobs do not; `whole`: they did.
        """
        overdue = {(ring, tier) for ring, t in turns.items() for tier in t.overdue_tiers}
        if not whole and overdue == self._overdue:
            return
        self._overdue = overdue
        members = (group for ring, tier in overdue for group in turns[ring].members_of(tier))
        bold = {process_id for group in members for process_id in group.processes}
        was_bold, self._bold = self._bold & living, bold
        for changed, honour in ((was_bold - bold, True), (bold - was_bold, False)):
            if changed:
                yield SetHonourPresence(process_ids=tuple(sorted(changed)), honour=honour)

    def tell_gates(self, verdicts: Sequence[Verdict]) -> Iterator[Action]:
        """Move gates as the new turns require."""
        closed = [p for verdict in verdicts for p in _processes_of(verdict.closed)]
        opened = [p for verdict in verdicts for p in _processes_of(verdict.opened)]
        return self._move_gates(closed, opened)

    def mend_gates(self, groups: Iterable[Group]) -> Iterator[Action]:
        """Tell every gate that differs from what was last told, after jobs changed."""
        wrong = [
            (group.open, process_id)
            for group in groups
            for process_id in group.processes
            if self.gates[process_id] is not group.open
        ]
        closed = [process_id for is_open, process_id in wrong if not is_open]
        opened = [process_id for is_open, process_id in wrong if is_open]
        return self._move_gates(closed, opened)

    def _move_gates(self, closed: list[int], opened: list[int]) -> Iterator[Action]:
        """Close gates before opening others."""
        if closed:
            self.gates.update(dict.fromkeys(closed, False))
            yield CloseGates(process_ids=tuple(closed))
        if opened:
            self.gates.update(dict.fromkeys(opened, True))
            yield OpenGates(process_ids=tuple(opened))


def _processes_of(groups: list[Group]) -> Iterator[int]:
    return chain.from_iterable(map(attrgetter("processes"), groups))
