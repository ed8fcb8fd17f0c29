"""Who competes on an island now, and what part of its time each group is owed.

The core promises this: a tier that waits for a higher one gets `min_share` of the time, the highest
tier that waits gets the rest, and groups of one tier share by weight. A group that takes no turns
is promised nothing, because it never waits. No group is promised anything under a policy whose
turns do not end, or go by something other than weight, nor while memory is exchanged with the turns
(residency.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tandemd.core.model import Group, GroupKey, Options
from tandemd.core.policies.policy import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Rivalry:
    """The competition on one island; computed once per look for all of its jobs."""

    max_hold_ns: int = 0
    quantum_ns: int = 0
    served_ns: int = 0
    wanting: frozenset[GroupKey] = frozenset()  # groups that want the GPU and take turns
    shares: dict[GroupKey, float] = field(default_factory=dict)

    def rivals_of(self, group: Group) -> int:
        """Return how many other groups want the GPU and take turns."""
        return len(self.wanting - {group.key})

    def owed_share(self, group: Group) -> float:
        """Return its part of the GPU's time, 0..1, while it and somebody else want it."""
        return self.shares.get(group.key, 0.0)


def rivalry_on(island: list[Group], policy: Policy, options: Options) -> Rivalry:
    """Look at the groups of an island."""
    eager = [group for group in island if group.wants and not group.paused]
    takers = [g for g in eager if not g.undrainable and not policy.always_open(g)]
    quantum_ns = policy.quantum_ns(options)
    # Turns for which memory is exchanged last as long as that takes: far longer than rules look
    # back.
    exchanges = any(group.turn_ns for group in island)
    is_promised = quantum_ns is not None and policy.by_weight
    contested = len(eager) > 1 and is_promised and not exchanges
    exempt = len(takers) < len(eager)
    return Rivalry(
        max_hold_ns=options.max_hold_ns,
        quantum_ns=quantum_ns or 0,
        served_ns=sum(group.served_ns for group in island),
        wanting=frozenset(group.key for group in takers),
        shares=_shares(takers, policy, options, exempt=exempt) if contested else {},
    )


def _shares(
    takers: list[Group], policy: Policy, options: Options, *, exempt: bool
) -> dict[GroupKey, float]:
    tiers: dict[int, list[Group]] = {}
    for group in takers:
        tiers.setdefault(policy.tier(group), []).append(group)
    shares: dict[GroupKey, float] = {}
    for rank, tier in enumerate(sorted(tiers)):
        is_first = rank == 0 and not exempt
        whole = 1 - options.min_share * (len(tiers) - 1) if is_first else options.min_share
        weights = {group.key: group.weight for group in tiers[tier]}
        total = sum(weights.values())
        shares |= {key: max(0.0, whole) * weight / total for key, weight in weights.items()}
    return shares
