"""Groups of SMs that parts of a plan exchange, once requests show what the plan did not foresee.

A plan leaves no group over, so one part's gain is another's loss. The groups come first from parts
whose jobs have no objective, then from parts whose jobs all keep theirs with much to spare. A part
gives back what it does not need only if jobs without an objective have use for it; otherwise nobody
would gain by that, and the part would have to get it again when its requests come faster.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from tandemd.core.planner.plans import Part, Plan


class Ease(IntEnum):
    """How easily a job does without one group."""

    NEEDS = 0  # its objective, or a person, requires what it has
    SPARES = 1  # it keeps its objective with much to spare, also with one group less
    FREE = 2  # it has no objective


EaseOf = Callable[[str], Ease]


def on_offer(plan: Plan, own: Part, ease: EaseOf) -> int:
    """Return how many groups another part would give to this one at once: 0 or 1."""
    return int(any(_gives(other, ease) for other in plan if other is not own))


def least(plan: Plan, own: Part, ease: EaseOf) -> int:
    """Return the fewest groups for a part: those it has, if nobody has use for more."""
    others = (part for part in plan if part is not own)
    return 1 if any(_ease(part, ease) is Ease.FREE for part in others) else own.groups


def resized(plan: Plan, own: Part, groups: int, ease: EaseOf) -> Plan:
    """Return the plan with this many groups for `own`, if another part gives or takes the rest."""
    others = [part for part in plan if part is not own]
    more = groups - own.groups
    if more > 0:
        others = [part for part in others if _gives(part, ease) and part.groups > more]
        partner = max(others, key=lambda part: (_ease(part, ease), part.groups), default=None)
    else:
        others = [part for part in others if _ease(part, ease) is Ease.FREE]
        partner = min(others, key=lambda part: part.groups, default=None)
    if partner is None or groups < 1:
        return plan
    sizes = {own.members: groups, partner.members: partner.groups - more}
    return tuple(Part(sizes.get(part.members, part.groups), part.members) for part in plan)


def _ease(part: Part, ease: EaseOf) -> Ease:
    return min(map(ease, part.members))


def _gives(part: Part, ease: EaseOf) -> bool:
    return part.groups > 1 and _ease(part, ease) > Ease.NEEDS
