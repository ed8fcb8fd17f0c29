"""What a policy says of groups that might hold a turn together."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from tandemd.core.model import Group, JobClass, Options


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Whether two groups may share turns, and why or why not, for people."""

    fits: bool
    why: str


class Pace(Enum):
    """What decides when a job goes on beside others, apart from turns."""

    FREE = 0
    CURVES = 1  # iterations begin when memory curves allow it (shifts.py)
    PHASES = 2  # phases begin when nobody else is in the same one (phase_gate.py)
    RATED = 3  # a part of the time, as long as the holder loses little (throttle.py)


class Companions(Protocol):
    """Whom a holder of the turn may have beside it."""

    @property
    def pace(self) -> Pace:
        """What decides when those go on who may run together."""

    def wants_bound(self, group: Group, options: Options) -> bool:
        """It matters what the group's work is bound by."""

    def may_join(self, group: Group, holder: Group, options: Options) -> bool:
        """The group may hold the turn together with its holder."""

    def judge(self, group: Group, other: Group, options: Options) -> Judgement:
        """The same of any two groups, in words."""


def kept_apart(group: Group, other: Group, options: Options) -> str:
    """Why the place lets kernels of the two not overlap, whatever they do; empty: it lets them."""
    if not options.overlaps(group.gpus | other.gpus):
        return "kernels of two processes overlap only under mps"
    if group.key[0] != other.key[0]:
        return "under mps only jobs of one user run side by side"
    return ""


def unfit(group: Group, options: Options, *, followed: str) -> tuple[tuple[bool, str], ...]:
    """What keeps a group from having a pace at all: whether each is so, and how to say it.

    `followed`: what of its process is looked at for that, as "memory of one only is".
    """
    count = len(group.processes)
    return (
        (not options.overlaps(group.gpus), "kernels of two processes overlap only under mps"),
        (group.job_class is JobClass.LATENCY, "jobs of the latency class do not wait for others"),
        (count != 1, f"it has {count} processes, and the {followed} followed"),
        (len(group.gpus) != 1, "it is on several gpus"),
    )
