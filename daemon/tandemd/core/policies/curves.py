"""Like `priority`, but under mps, jobs share turns if their memory fits together when shifted.

Their memory curves decide when an iteration may begin and what each job may hold meanwhile
(shifts.py). A job that is then in the middle of an iteration may run beside another.
"""

from __future__ import annotations

from tandemd.core.model import Group, JobClass, Options
from tandemd.core.policies.pair import Pair
from tandemd.core.turns.companions import Judgement, Pace, kept_apart


class SideBySide:
    """Companions whose pace was decided beforehand: when each job continues."""

    def __init__(self, pace: Pace, *, why: str) -> None:
        """`why`: what to say about two groups that may share a turn."""
        self.pace = pace
        self._why = why

    def wants_bound(self, group: Group, options: Options) -> bool:
        """What bounds their work does not matter."""
        return False

    def may_join(self, group: Group, holder: Group, options: Options) -> bool:
        """Tell whether nothing speaks against it."""
        return self.judge(group, holder, options).fits

    def judge(self, group: Group, other: Group, options: Options) -> Judgement:
        """Judge by the most general reason against it."""
        if why := kept_apart(group, other, options):
            return Judgement(fits=False, why=why)
        if group.job_class is not other.job_class or group.job_class is JobClass.LATENCY:
            return Judgement(fits=False, why="only best-effort jobs of one class share turns")
        return Judgement(fits=True, why=self._why)


DESCRIPTION = "as priority; under mps, equals run side by side, shifted so that their memory fits"


def curves() -> Pair:
    """Share turns as `pair` does, with other companions."""
    companions = SideBySide(Pace.CURVES, why="their iterations begin when their memory allows")
    return Pair(companions=companions, description=DESCRIPTION)
