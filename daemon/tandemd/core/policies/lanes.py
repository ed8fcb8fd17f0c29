"""Jobs come by lanes (docs/admission.md); those whose iteration it is share the GPU fairly."""

from __future__ import annotations

from tandemd.core.model import Group, Options


class ByLanes:
    """Side by side under MPS, by turns elsewhere: memory never depends on which."""

    description = "jobs come only when their iterations fit, and share that room by turns"
    companions = None
    by_lanes = True

    def always_open(self, group: Group) -> bool:
        """Whose iteration it is, where kernels of several processes overlap."""
        return group.is_beside

    def tier(self, group: Group) -> int:
        """Everyone is equal."""
        del group
        return 0

    def order(self, group: Group) -> float:
        """Who has been served least for its weight."""
        return group.virtual_ns

    def quantum_ns(self, options: Options) -> int | None:
        """The configured one: between lanes the turn may pass on at any time."""
        return options.quantum_ns

    def preempts(self, challenger: Group, holder: Group) -> bool:
        """Nobody does."""
        del challenger, holder
        return False

    def windowed(self, group: Group) -> bool:
        """All: a hand-over then waits for two segments, not for a deep queue."""
        del group
        return True

    def yields_to(self, group: Group, other: Group) -> bool:
        """Never: turns alone decide."""
        del group, other
        return False
