"""A policy's say on groups that might share a turn."""

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
    """What decides when a job continues beside others, apart from turns."""

    FREE = 0
    CURVES = 1  # iterations begin when memory curves allow it (shifts.py)
    PHASES = 2  # phases begin when no other job is in the same one (phase_gate.py)
    RATED = 3  # a fraction of the time, as long as the holder loses little (throttle.py)


class Companions(Protocol):
    """Which groups may share the turn with its holder."""

    @property
    def pace(self) -> Pace:
        """What decides when jobs that may run together continue."""

    def wants_bound(self, group: Group, options: Options) -> bool:
        """Tell whether it matters what bounds the group's work."""

    def may_join(self, group: Group, holder: Group, options: Options) -> bool:
        """Tell whether the group may share the turn with its holder."""

    def judge(self, group: Group, other: Group, options: Options) -> Judgement:
        """Judge any two groups in the same way, in words."""


def kept_apart(group: Group, other: Group, options: Options) -> str:
    """Why kernels of the two cannot overlap here, whatever they do; empty: they can."""
    if not options.overlaps(group.gpus | other.gpus):
        return "kernels of two processes overlap only under mps"
    if group.key[0] != other.key[0]:
        return "under mps only jobs of one user run side by side"
    return ""


def unfit(group: Group, options: Options, *, followed: str) -> tuple[tuple[bool, str], ...]:
    """Conditions that keep a group from having a pace at all: whether each holds, and its wording.

    `followed`: what is tracked of a single process, as in "memory of one only is".
    """
    count = len(group.processes)
    return (
        (not options.overlaps(group.gpus), "kernels of two processes overlap only under mps"),
        (group.job_class is JobClass.LATENCY, "jobs of the latency class do not wait for others"),
        (count != 1, f"it has {count} processes, and the {followed} followed"),
        (len(group.gpus) != 1, "it is on several gpus"),
    )
