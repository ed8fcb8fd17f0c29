"""Latency jobs run at once; the rest fills what they leave, ranked by class and fair within one."""

from __future__ import annotations

from tandemd.core.model import Group, JobClass, Options


class Priority:
    """Latency class always open; best-effort groups take turns, windowed, and yield to presence."""

    description = "latency jobs are never held; normal before batch in the time they leave"
    companions = None
    by_lanes = False
    by_pieces = False

    def always_open(self, group: Group) -> bool:
        """The latency class."""
        return group.job_class is JobClass.LATENCY

    def tier(self, group: Group) -> int:
        """The class is the rank."""
        return int(group.job_class)

    def order(self, group: Group) -> float:
        """Fair within a rank."""
        return group.virtual_ns

    def look_again_ns(self, group: Group) -> int | None:
        """Never."""
        del group
        return None

    def may_cut(self, group: Group) -> bool:
        """There are no pieces."""
        del group
        return False

    def quantum_ns(self, options: Options) -> int | None:
        """The configured one."""
        return options.quantum_ns

    def preempts(self, challenger: Group, holder: Group) -> bool:
        """A higher rank does."""
        return challenger.job_class < holder.job_class

    def why_waits(self, group: Group, holder: Group, now_ns: int) -> str:
        """Turns say it all."""
        del group, holder, now_ns
        return ""

    def windowed(self, group: Group) -> bool:
        """Everything but the latency class."""
        return group.job_class is not JobClass.LATENCY

    def yields_to(self, group: Group, other: Group) -> bool:
        """To every higher rank."""
        return other.job_class < group.job_class
