"""Like `priority`, but under mps batch work runs beside normal work as fast as that loses little.

The lower class gets what the other leaves of the GPU itself, not only of its time. Nobody has to
predict how much that is (turns/throttle.py). AntMan (Xiao et al., OSDI 2020) and TGS (Wu et al.,
NSDI 2023) share GPUs between guaranteed and opportunistic jobs in this way.
"""

from __future__ import annotations

from tandemd.core.model import Group, JobClass, Options
from tandemd.core.policies.pair import Pair
from tandemd.core.turns.companions import Judgement, Pace, kept_apart


class Lower:
    """Batch work beside normal work, at a rate that the throttle decides."""

    pace = Pace.RATED

    def wants_bound(self, group: Group, options: Options) -> bool:
        """What bounds their work does not matter: its effect on the other is measured."""
        return False

    def may_join(self, group: Group, holder: Group, options: Options) -> bool:
        """A lower class may join a higher one, never the other way round."""
        return group.job_class > holder.job_class and self.judge(group, holder, options).fits

    def judge(self, group: Group, other: Group, options: Options) -> Judgement:
        """Judge by the most general reason against it."""
        if why := kept_apart(group, other, options):
            return Judgement(fits=False, why=why)
        classes = {group.job_class, other.job_class}
        if classes != {JobClass.NORMAL, JobClass.BATCH}:
            return Judgement(
                fits=False, why="a batch job runs beside a normal one, and no other does"
            )
        if any(one.stall_ns or one.needs_memory for one in (group, other)):
            return Judgement(fits=False, why="their memory takes turns: not all of it fits at once")
        return Judgement(fits=True, why="batch beside normal, at a rate that costs it little")


class Throttle(Pair):
    """Batch jobs ignore the presence of normal ones where they may run beside them."""

    def __init__(self) -> None:
        super().__init__(
            companions=Lower(),
            description="as priority; under mps, batch runs beside normal, at a rate that "
            "costs it little",
        )

    def yields_to(self, group: Group, other: Group, *, overlap: bool) -> bool:
        """Yield to the latency class only, where kernels overlap."""
        if overlap and other.job_class is not JobClass.LATENCY:
            return False
        return super().yields_to(group, other, overlap=overlap)
