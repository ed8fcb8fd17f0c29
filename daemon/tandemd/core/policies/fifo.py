"""One job at a time, in order of arrival, for as long as it has work."""

from __future__ import annotations

from tandemd.core.model import Group, Options


class Fifo:
    """Strict order of arrival; an earlier group that has work again takes the GPU back."""

    description = "one job at a time in order of arrival, as long as it has work"
    companions = None
    by_lanes = False
    by_pieces = False

    def always_open(self, group: Group) -> bool:
        """Nobody is exempt."""
        del group
        return False

    def tier(self, group: Group) -> int:
        """Everyone is equal but for arrival."""
        del group
        return 0

    def order(self, group: Group) -> float:
        """First come, first served."""
        return group.arrival

    def look_again_ns(self, group: Group) -> int | None:
        """Never."""
        del group
        return None

    def may_cut(self, group: Group) -> bool:
        """There are no pieces."""
        del group
        return False

    def quantum_ns(self, options: Options) -> int | None:
        """No quantum: only `max_hold` interrupts."""
        del options
        return None

    def preempts(self, challenger: Group, holder: Group) -> bool:
        """An earlier arrival does."""
        return challenger.arrival < holder.arrival

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
