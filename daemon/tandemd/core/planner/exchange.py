"""Groups of SMs that parts of a plan give to each other, once requests tell what the plan did not.

A plan leaves no group over, so what one part gets another one gives: first those whose jobs have no
objective, then those whose jobs all keep theirs with much to spare. A part gives back what it does
not need where jobs without an objective have use for it; else nobody gained by that, and it would
have to get it again when its requests come faster.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from tandemd.core.planner.plans import Part, Plan


class Ease(IntEnum):
    """How little a job minds having a group less."""

    NEEDS = 0  # its objective, or a person, wants what it has
    SPARES = 1  # it keeps its objective with much to spare, and would with a group less
    FREE = 2  # it has no objective


EaseOf = Callable[[str], Ease]


def on_offer(plan: Plan, own: Part, ease: EaseOf) -> int:
    """How many groups another part gives to this one, at once: 0 or 1."""
    return int(any(_gives(other, ease) for other in plan if other is not own))


def least(plan: Plan, own: Part, ease: EaseOf) -> int:
    """How few groups a part may come down to: those it has, where nobody has use for any."""
    others = (part for part in plan if part is not own)
    return 1 if any(_ease(part, ease) is Ease.FREE for part in others) else own.groups


def resized(plan: Plan, own: Part, groups: int, ease: EaseOf) -> Plan:
    """The same with so many groups for one of its parts, where another gives or takes the rest."""
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
