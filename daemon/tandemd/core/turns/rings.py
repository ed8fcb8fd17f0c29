"""Who takes turns with whom on all GPUs, and what a group takes along from one ring to another.

A ring is the groups of an island, or of one part of it where that is divided (divisions.py).

Rules
1. Whoever has got least in its ring goes first: GPU time by weight, its virtual time. Idle time is
   not saved up: who begins to want the GPU is two quanta before the others at most.
2. Who comes from another ring was served there, and owes nothing for it here. It brings how far it
   was before or behind those that it took turns with, up to the same two quanta.
3. A ring decides again when something of one of its groups changed, or when its time has come. GPU
   time passes no faster than real time, so that a quantum cannot end before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from tandemd.core.model import Group, GroupKey, Options
from tandemd.core.policies.policy import Policy
from tandemd.core.turns.turns import Turns, Verdict

Ring = tuple[frozenset[int], int]  # GPUs of an island, and a part of it; 0 = all of it
CREDIT_QUANTA = 2

_Islands = Mapping[frozenset[int], list[Group]]


@dataclass(slots=True)
class Rings:
    """Belongs to the scheduler."""

    members: dict[Ring, list[Group]] = field(default_factory=dict)  # in order of arrival
    turns: dict[Ring, Turns] = field(default_factory=dict)
    _home: dict[GroupKey, Ring] = field(default_factory=dict)
    _touched: set[Ring] = field(default_factory=set)  # of which a fact changed
    _wakes: dict[Ring, int | None] = field(default_factory=dict)  # when each wants to decide again

    def of(self, group: Group) -> Ring | None:
        """In which a group is; None: it has no process on a GPU."""
        return self._home.get(group.key)

    def turns_of(self, group: Group) -> Turns | None:
        """Of its ring; None also where turns have just begun anew, until all are seated."""
        ring = self.of(group)
        return None if ring is None else self.turns.get(ring)

    @property
    def wakes_ns(self) -> list[int]:
        """When rings want to decide again."""
        return [at_ns for at_ns in self._wakes.values() if at_ns is not None]

    def seat(
        self, islands: _Islands, groups: Mapping[GroupKey, Group], policy: Policy, options: Options
    ) -> None:
        """Groups came or went, or are in another part."""
        self.members = _rings_of(islands)
        self.turns = {ring: self.turns.get(ring) or Turns() for ring in self.members}
        before, self._wakes = self._home, {}
        self._home = {g.key: ring for ring, members in self.members.items() for g in members}
        self._carry_leads(before, groups, policy, options)

    def begin_anew(self) -> None:
        """Another policy: whose turn it was counts no more."""
        self.turns.clear()

    def holds(self, group: Group) -> bool:
        """It has the turn of its ring."""
        return self.turns[self._home[group.key]].holder == group.key

    def note(self, group: Group) -> None:
        """Its turns will look at it when they decide."""
        self.turns[self._home[group.key]].note(group)

    def touch(self, group: Group) -> None:
        """Its ring decides again."""
        self._touched.add(self._home[group.key])

    def decide(
        self, *, policy: Policy, options: Options, now_ns: int, are_all: bool
    ) -> list[Verdict]:
        """Let the rings decide that want to, or all of them."""
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
        """It begins to want the GPU."""
        if turns := self.turns_of(group):
            now_ns = turns.virtual_now_ns(but=group)
            group.virtual_ns = max(group.virtual_ns, now_ns - _credit_ns(group, options))

    def forget_all_credit(self, group: Group) -> None:
        """What it got among others is neither its debt nor its credit among these."""
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
    """Of rings with these members, by tier: that of whoever is next, or was served last."""
    members = defaultdict[tuple[Ring, int], list[Group]](list)
    for key, ring in homes.items():
        if group := groups.get(key):
            members[ring, policy.tier(group)].append(group)
    return {
        seat: min((g.virtual_ns for g in found if g.wants), default=found[0].virtual_ns)
        for seat, found in members.items()
    }


def _credit_ns(group: Group, options: Options) -> float:
    """Virtual time that idle groups keep, at most."""
    return CREDIT_QUANTA * options.quantum_ns / group.weight
