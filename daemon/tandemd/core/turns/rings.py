"""Who takes turns with whom on all GPUs, and the standing a group keeps when it changes rings.

A ring is the groups of an island, or of one part of it if the island is divided (divisions.py).

Rules
1. The group that got least in its ring goes first, measured as virtual time: GPU time over weight.
   Idle time is not saved up: a group that begins to want the GPU is at most two quanta ahead.
2. What a group was served in another ring is no debt in the new one. It brings along its lead over
   or lag behind the groups that it took turns with, up to the same two quanta.
3. A ring decides again when a fact of one of its groups changes, or when its time has come. GPU
   time passes no faster than real time, so a quantum cannot end earlier.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from tandemd.core.model import Group, GroupKey, Options
from tandemd.core.policies.policy import Policy
from tandemd.core.turns.turns import Turns, Verdict

Ring = tuple[frozenset[int], int]  # GPUs of an island, and the number of a part; 0 = all of it
CREDIT_QUANTA = 2

_Islands = Mapping[frozenset[int], list[Group]]


@dataclass(slots=True)
class Rings:
    """All rings and their turns. Belongs to the scheduler."""

    members: dict[Ring, list[Group]] = field(default_factory=dict)  # in order of arrival
    turns: dict[Ring, Turns] = field(default_factory=dict)
    _home: dict[GroupKey, Ring] = field(default_factory=dict)
    _touched: set[Ring] = field(default_factory=set)  # rings in which a fact changed
    _wakes: dict[Ring, int | None] = field(default_factory=dict)  # when each wants to decide again

    def of(self, group: Group) -> Ring | None:
        """The ring of a group; None: it has no process on a GPU."""
        return self._home.get(group.key)

    def turns_of(self, group: Group) -> Turns | None:
        """The turns of its ring; None also after `begin_anew`, until all are seated."""
        ring = self.of(group)
        return None if ring is None else self.turns.get(ring)

    @property
    def wakes_ns(self) -> list[int]:
        """When rings want to decide again."""
        return [at_ns for at_ns in self._wakes.values() if at_ns is not None]

    def seat(
        self, islands: _Islands, groups: Mapping[GroupKey, Group], policy: Policy, options: Options
    ) -> None:
        """Rebuild the rings after groups came, left or changed parts."""
        self.members = _rings_of(islands)
        self.turns = {ring: self.turns.get(ring) or Turns() for ring in self.members}
        before, self._wakes = self._home, {}
        self._home = {g.key: ring for ring, members in self.members.items() for g in members}
        self._carry_leads(before, groups, policy, options)

    def begin_anew(self) -> None:
        """Forget all turns: under another policy they no longer count."""
        self.turns.clear()

    def holds(self, group: Group) -> bool:
        """Tell whether the group holds the turn of its ring."""
        return self.turns[self._home[group.key]].holder == group.key

    def note(self, group: Group) -> None:
        """Have its turns look at the group in their next decision."""
        self.turns[self._home[group.key]].note(group)

    def touch(self, group: Group) -> None:
        """Have its ring decide again."""
        self._touched.add(self._home[group.key])

    def decide(
        self, *, policy: Policy, options: Options, now_ns: int, are_all: bool
    ) -> list[Verdict]:
        """Let the rings decide that are due or touched, or all of them."""
        verdicts = []
        for ring, turns in self.turns.items():
            wake_at_ns = self._wakes.get(ring)
            is_due = wake_at_ns is not None and now_ns >= wake_at_ns
            if are_all or is_due or ring in self._touched:
                verdict = turns.decide(policy=policy, options=options, now_ns=now_ns)
                self._wakes[ring] = verdict.wake_at_ns
                verdicts.append(verdict)
        self._touched.clear()
        return verdicts

    def forget_old_credit(self, group: Group, options: Options) -> None:
        """Cap the credit of a group that begins to want the GPU."""
        if turns := self.turns_of(group):
            now_ns = turns.virtual_now_ns(but=group)
            group.virtual_ns = max(group.virtual_ns, now_ns - _credit_ns(group, options))

    def forget_all_credit(self, group: Group) -> None:
        """Give the group neither debt nor credit: its service was among other groups."""
        if turns := self.turns_of(group):
            group.virtual_ns = turns.virtual_now_ns(but=group)

    def _carry_leads(
        self,
        before: Mapping[GroupKey, Ring],
        groups: Mapping[GroupKey, Group],
        policy: Policy,
        options: Options,
    ) -> None:
        here = self._home
        moved = [key for key, ring in here.items() if before.get(key, ring) != ring]
        if not moved:
            return
        stayed = {key: ring for key, ring in here.items() if before.get(key) == ring}
        then = _virtual_times(before, groups, policy)
        now = _virtual_times(stayed, groups, policy)
        for key in moved:
            group = groups[key]
            tier, credit_ns = policy.tier(group), _credit_ns(group, options)
            lead_ns = group.virtual_ns - then[before[key], tier]
            lead_ns = min(credit_ns, max(-credit_ns, lead_ns))
            group.virtual_ns = now.get((here[key], tier), 0.0) + lead_ns


def _rings_of(islands: _Islands) -> dict[Ring, list[Group]]:
    rings = defaultdict[Ring, list[Group]](list)
    for gpus, members in islands.items():
        for group in members:
            part = max(job.part for job in group.jobs.values())
            rings[gpus, part].append(group)
    return dict(rings)


def _virtual_times(
    homes: Mapping[GroupKey, Ring], groups: Mapping[GroupKey, Group], policy: Policy
) -> dict[tuple[Ring, int], float]:
    """Virtual time of each ring and tier: of the group that is next, or was served last."""
    members = defaultdict[tuple[Ring, int], list[Group]](list)
    for key, ring in homes.items():
        if group := groups.get(key):
            members[ring, policy.tier(group)].append(group)
    return {
        seat: min((g.virtual_ns for g in found if g.wants), default=found[0].virtual_ns)
        for seat, found in members.items()
    }


def _credit_ns(group: Group, options: Options) -> float:
    """The most virtual time that an idle group may save up."""
    return CREDIT_QUANTA * options.quantum_ns / group.weight
