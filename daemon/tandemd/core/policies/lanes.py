"""Admit jobs by lanes (docs/admission.md); those whose iteration it is share the GPU fairly."""

from __future__ import annotations

from tandemd.core.model import Group
from tandemd.core.policies.fair import Fair


class ByLanes(Fair):
    """Side by side under MPS, in turns elsewhere: memory never depends on which."""

    description = "jobs are admitted only when their iterations fit, and take turns in that room"
    by_lanes = True

    def always_open(self, group: Group) -> bool:
        """True where lanes run side by side: kernels of several processes overlap there."""
        return group.is_beside
