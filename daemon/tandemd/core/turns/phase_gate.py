"""Keeps phases apart: jobs never run side by side in the same kind of phase.

Wavelet's gate (Wang et al., MLSys 2021), but between processes. One trainer's forward pass takes
memory while another's backward pass gives it back, so their peaks do not coincide.

Rules
1. Jobs that mark phases take part (`tandem.phase`) if another job is on their GPU and kernels run
   side by side there.
2. A process stops by itself at the mark that begins a phase, and allocates no memory there. It
   continues once its own work has drained and nobody holds that phase. Of several, the one that has
   not been in the phase for the longest time goes first.
3. It holds the phase until it stands before another one, or has marked the end, and its work has
   drained.
4. No process stands for longer than `max_hold_ns`. A process that has wanted nothing of the GPU for
   `memory_quiet_ns` holds no phase.

A process that stands holds no phase, so there is no circular wait. Phases of the same name are the
same phase.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tandemd.core.events import Action, SetPhaseLimit
from tandemd.core.model import Group, Options, Process
from tandemd.core.turns.companions import unfit

LOOK_NS = 1_000_000  # how often to look while a process stands: one round of the poller


@dataclass(slots=True, kw_only=True)
class Passer:
    """One process, and what it was told."""

    process: Process
    group: Group
    phases_allowed: int = 0  # it stops at the mark that begins this phase number; 0 = never
    held: int = 0  # hash of the phase it is in; 0 = none
    stands_since_ns: int | None = None
    let_in_ns: dict[int, int] = field(default_factory=dict)  # by phase: when it last began

    @property
    def stands(self) -> bool:
        """Tell whether it is stopped at the beginning of a phase."""
        return 0 < self.phases_allowed <= self.process.usage.stopped_phases

    @property
    def phase(self) -> int:
        """The phase it is in or stands before, by its own claim; 0 = none."""
        return self.process.usage.phase_hash

    def watch(self, now_ns: int) -> None:
        """Update which phase it holds."""
        busy = self.process.usage.busy
        if self.stands:
            if self.stands_since_ns is None:
                self.stands_since_ns = now_ns
            self.held = self.held if busy else 0
        elif self.phase or not busy:
            if self.phase != self.held:  # it began before it was watched
                self.let_in_ns[self.phase] = now_ns
            self.held = self.phase

    def begin(self, now_ns: int) -> None:
        """Let it begin the phase that it stands before."""
        self.phases_allowed = self.process.usage.begun_phases + 1
        self.held, self.stands_since_ns = self.phase, None
        self.let_in_ns[self.phase] = now_ns

    def stood_ns(self, now_ns: int) -> int:
        """How long it has been stopped so far."""
        return 0 if self.stands_since_ns is None else now_ns - self.stands_since_ns

    def may_go_on(self, options: Options, now_ns: int) -> bool:
        """Tell whether it stands and has drained, or has stood for `max_hold_ns`.

        Its work may depend on what comes next, and then never drains.
        """
        waited = self.stood_ns(now_ns) >= options.max_hold_ns
        return self.stands and (waited or not self.process.usage.busy)

    def is_quiet(self, now_ns: int, options: Options) -> bool:
        """Tell whether it was inactive for so long that nobody waits for the end of its phase."""
        return now_ns - self.group.last_wanted_ns >= options.memory_quiet_ns


class PhaseGate:
    """Phase decisions for all GPUs. Pure; belongs to the scheduler, whose values it reads."""

    def __init__(self) -> None:
        self.wake_at_ns: int | None = None
        self.moved: list[Group] = []  # groups whose `is_kept` changed in the newest decision
        self._passers: dict[int, Passer] = {}  # by process; costs nothing while empty

    @property
    def is_used(self) -> bool:
        """Tell whether any process is watched, or a wake-up must be withdrawn."""
        return bool(self._passers) or self.wake_at_ns is not None

    def passer(self, process_id: int) -> Passer | None:
        """What was decided about a process; None: nothing."""
        return self._passers.get(process_id)

    def holder_beside(self, passer: Passer) -> Group | None:
        """The group in the phase that the passer stands before."""
        rivals = [p for p in self._passers.values() if p.process.gpu == passer.process.gpu]
        return next((p.group for p in rivals if p is not passer and p.held == passer.phase), None)

    def forget(self, process_id: int) -> None:
        """Drop a process that is gone."""
        self._passers.pop(process_id, None)

    def decide(self, groups: Iterable[Group], options: Options, now_ns: int) -> list[Action]:
        """Decide who continues; `groups` are those whose policy keeps phases apart."""
        self.wake_at_ns, self.moved = None, []
        before = {process_id: p.phases_allowed for process_id, p in self._passers.items()}
        wanted = _candidates(groups, options)
        left = [p for process_id, p in self._passers.items() if process_id not in wanted]
        self._passers = {
            process_id: self._passers.get(process_id) or Passer(process=process, group=group)
            for process_id, (process, group) in wanted.items()
        }
        for passer in self._passers.values():
            if not passer.phases_allowed:
                passer.phases_allowed = passer.process.usage.begun_phases + 1
            passer.watch(now_ns)
        self._let_in(options, now_ns)
        for passer in left:
            passer.phases_allowed = 0
        for passer in (*left, *self._passers.values()):
            if passer.group.is_kept is not passer.stands:
                passer.group.is_kept = passer.stands
                self.moved.append(passer.group)
        return [action for p in (*left, *self._passers.values()) for action in _told(p, before)]

    def _let_in(self, options: Options, now_ns: int) -> None:
        standing = [p for p in self._passers.values() if p.may_go_on(options, now_ns)]
        standing.sort(key=lambda p: (p.let_in_ns.get(p.phase, -1), p.group.arrival))
        for passer in standing:
            if self._may_begin(passer, options, now_ns):
                passer.begin(now_ns)
        if any(passer.stands for passer in self._passers.values()):
            self.wake_at_ns = now_ns + LOOK_NS

    def _may_begin(self, passer: Passer, options: Options, now_ns: int) -> bool:
        if passer.stood_ns(now_ns) >= options.max_hold_ns:
            return True
        return not any(
            other.held == passer.phase
            for other in self._passers.values()
            if other is not passer
            and other.process.gpu == passer.process.gpu
            and not other.is_quiet(now_ns, options)
        )


def objection(group: Group, options: Options) -> str | None:
    """Why a group's phases are not kept apart from those of others; None: they are."""
    against = (
        *unfit(group, options, followed="phases of only one are"),
        (group.paused, "it is paused"),
    )
    return next((why for is_so, why in against if is_so), None)


def _candidates(groups: Iterable[Group], options: Options) -> dict[int, tuple[Process, Group]]:
    """Processes that may mark a phase next, except those that are alone on their GPU."""
    by_gpu: dict[int, list[tuple[Process, Group]]] = {}
    for group in groups:
        if objection(group, options) is None:
            for process in group.processes.values():
                by_gpu.setdefault(process.gpu, []).append((process, group))
    crowds = (crowd for crowd in by_gpu.values() if len(crowd) > 1)
    return {process.process_id: (process, group) for crowd in crowds for process, group in crowd}


def _told(passer: Passer, before: dict[int, int]) -> Iterable[Action]:
    process_id, allowed = passer.process.process_id, passer.phases_allowed
    if before.get(process_id, 0) != allowed:
        yield SetPhaseLimit(process_id=process_id, phases=allowed)
