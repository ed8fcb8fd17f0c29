"""One job at a time, in order of arrival, for as long as it has work."""

from __future__ import annotations

from tandemd.core.model import Group, Options
from tandemd.core.policies.policy import Policy


class Fifo(Policy):
    """Strict order of arrival; an earlier group that has work again takes the GPU back."""

    description = "one job at a time in order of arrival, as long as it has work"

    def order(self, group: Group) -> float:
        """First come, first served."""
        return group.arrival

    def quantum_ns(self, options: Options) -> int | None:
        """No quantum: only `max_hold` interrupts."""
        del options
        return None

    def preempts(self, challenger: Group, holder: Group) -> bool:
        """Earlier arrivals preempt."""
        return challenger.arrival < holder.arrival
