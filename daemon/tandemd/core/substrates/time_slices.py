"""Contexts take turns, each on all SMs: the driver's default, which needs nothing."""

from __future__ import annotations

from tandemd.core.model import JobSpec


class TimeSlices:
    """Shares of time are weights of fair queueing (space/asked.py)."""

    description = "mode time: kernels of two processes never overlap"
    warning = ""
    divides_space = False
    is_live = True

    def variables(self, spec: JobSpec, sm_count: int) -> dict[str, str]:
        """Return none."""
        del spec, sm_count
        return {}
