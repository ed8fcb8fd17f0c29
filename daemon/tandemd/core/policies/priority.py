"""Latency jobs run at once; others fill what they leave, ranked by class and fair within one."""

from __future__ import annotations

from tandemd.core.model import Group, JobClass
from tandemd.core.policies.policy import Policy


class Priority(Policy):
    """Latency class always open; best-effort groups take turns, windowed, and yield to presence."""

    description = "latency jobs are never held; normal before batch in the time they leave"

    def always_open(self, group: Group) -> bool:
        """True for the latency class."""
        return group.job_class is JobClass.LATENCY

    def tier(self, group: Group) -> int:
        """The class is the rank."""
        return int(group.job_class)

    def preempts(self, challenger: Group, holder: Group) -> bool:
        """A higher rank preempts."""
        return challenger.job_class < holder.job_class

    def windowed(self, group: Group) -> bool:
        """True for all but the latency class."""
        return group.job_class is not JobClass.LATENCY

    def yields_to(self, group: Group, other: Group, *, overlap: bool) -> bool:
        """Yield to every higher rank."""
        del overlap
        return other.job_class < group.job_class
