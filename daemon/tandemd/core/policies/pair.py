"""Like `priority`, but two best-effort jobs that need different parts of the GPU share a turn.

Two kernels side by side save time if each leaves what the other needs, and none if both need the
same (Orion: Strati et al., EuroSys 2024, table 2). The rule is also Orion's: work beside the holder
must be of another class. But work of unknown class, which Orion admits, waits here.
"""

from __future__ import annotations

from tandemd.core.model import Bound, Group, JobClass, Options
from tandemd.core.policies.priority import Priority
from tandemd.core.turns.companions import Companions, Judgement, Pace, kept_apart

_COMPLEMENTS = {
    Bound.UNKNOWN: frozenset[Bound](),
    Bound.COMPUTE: frozenset({Bound.MEMORY, Bound.COPY, Bound.SMALL}),
    Bound.MEMORY: frozenset({Bound.COMPUTE, Bound.COPY, Bound.SMALL}),
    Bound.COPY: frozenset({Bound.COMPUTE, Bound.MEMORY, Bound.SMALL}),
    Bound.SMALL: frozenset({Bound.COMPUTE, Bound.MEMORY, Bound.COPY, Bound.SMALL}),
}
_WORDS = {
    Bound.COMPUTE: "by computing",
    Bound.MEMORY: "by memory bandwidth",
    Bound.COPY: "by copies",
    Bound.SMALL: "by being small",
}


DESCRIPTION = "as priority; under mps, equals that are bound by different things share their turns"


class Complements:
    """Groups may share a turn if what bounds their work differs."""

    pace = Pace.FREE

    def wants_bound(self, group: Group, options: Options) -> bool:
        """True for best-effort work that could run beside other work."""
        return (
            options.classify_kernels
            and group.job_class is not JobClass.LATENCY
            and options.overlaps(group.gpus)
        )

    def may_join(self, group: Group, holder: Group, options: Options) -> bool:
        """Tell whether nothing speaks against it."""
        if group.bound not in _COMPLEMENTS[holder.bound]:
            return False  # nearly always the reason, and quick to check
        return self.judge(group, holder, options).fits

    def judge(self, group: Group, other: Group, options: Options) -> Judgement:
        """Judge by the most general reason against it, or say why they fit."""
        hindrance = _of_place(group, other, options) or _of_work(group, other)
        if hindrance is not None:
            return Judgement(fits=False, why=hindrance)
        return Judgement(fits=True, why=f"bound {_WORDS[group.bound]} and {_WORDS[other.bound]}")


def _of_place(group: Group, other: Group, options: Options) -> str | None:
    """Why they cannot share turns, whatever their work is."""
    if not options.classify_kernels:
        return "what bounds kernels is not recorded (scheduler.classify_kernels)"
    if why := kept_apart(group, other, options):
        return why
    if group.job_class is not other.job_class or group.job_class is JobClass.LATENCY:
        return "only best-effort jobs of one class share turns"
    return None


def _of_work(group: Group, other: Group) -> str | None:
    for one in (group, other):
        if one.bound is Bound.UNKNOWN:
            return f"what bounds {one.title} is not known"
    if other.bound not in _COMPLEMENTS[group.bound]:
        return f"both are bound {_WORDS[group.bound]}"
    return None


class Pair(Priority):
    """A turn belongs to the holder and to a companion of its class that needs something else.

    Each of the two is charged for part of the time that they run together.
    """

    def __init__(
        self, *, companions: Companions | None = None, description: str = DESCRIPTION
    ) -> None:
        """`companions`: who shares turns; by default, groups that complement each other."""
        self.companions = companions or Complements()
        self.description = description
