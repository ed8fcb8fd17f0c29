"""GPU time in proportion to weight, by start-time fair queueing over measured GPU time."""

from __future__ import annotations

from tandemd.core.model import Group, Options


class Fair:
    """The group with the least GPU time divided by its weight goes next, a quantum at a time."""

    description = "gpu time in proportion to the weight of each job's class, in quanta"
    companions = None
    by_lanes = False
    by_pieces = False

    def always_open(self, group: Group) -> bool:
        """Nobody is exempt."""
        del group
        return False

    def tier(self, group: Group) -> int:
        """Weights, not ranks, tell groups apart."""
        del group
        return 0

    def order(self, group: Group) -> float:
        """Least weighted service first."""
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
        """Nobody does: quanta are short."""
        del challenger, holder
        return False

    def why_waits(self, group: Group, holder: Group, now_ns: int) -> str:
        """Turns say it all."""
        del group, holder, now_ns
        return ""

    def windowed(self, group: Group) -> bool:
        """All: a hand-over then waits for two segments, not for a deep queue."""
        del group
        return True

    def yields_to(self, group: Group, other: Group) -> bool:
        """Never: turns alone decide."""
        del group, other
        return False
