"""Instances of MIG: devices of their own, with memory, caches and SMs that no other one has."""

from __future__ import annotations

from tandemd.core.model import JobSpec


class Mig:
    """Jobs on two instances have nothing to do with each other; those on one take turns.

    So all is as on a GPU of that size, in time: `--sm` counts the SMs of the instance, and is a
    share of its time.
    """

    description = (
        "mode mig: kernels on two instances run side by side, contexts on one instance take turns"
    )
    warning = ""
    divides_space = False
    is_live = True

    def variables(self, spec: JobSpec, sm_count: int) -> dict[str, str]:
        """None: which instance a job gets, `CUDA_VISIBLE_DEVICES` says."""
        del spec, sm_count
        return {}
