"""MIG instances: devices of their own, with memory, caches and SMs that no other instance has."""

from __future__ import annotations

from tandemd.core.model import JobSpec


class Mig:
    """Jobs on different instances do not affect each other; jobs on one instance take turns.

    So everything is as in mode time on a GPU of that size: `--sm` counts the SMs of the instance,
    and is a share of its time.
    """

    description = (
        "mode mig: kernels on two instances run side by side, contexts on one instance take turns"
    )
    warning = ""
    divides_space = False
    is_live = True

    def variables(self, spec: JobSpec, sm_count: int) -> dict[str, str]:
        """Return none: `CUDA_VISIBLE_DEVICES` says which instance a job gets."""
        del spec, sm_count
        return {}
