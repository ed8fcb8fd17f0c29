"""Clients of one MPS server run side by side; what a client may use is set before it starts.

The variables are those of NVIDIA's "Multi-Process Service", section 4. The limit of pinned memory
is not used, because it could not be raised while the job runs, as `tandem set` can.
"""

from __future__ import annotations

from tandemd.core.model import JobClass, JobSpec

BELOW_NORMAL = "1"  # a client priority


class Mps:
    """The server limits every client to its percentage of the SMs, whichever SMs these are."""

    description = "mode mps: kernels of several processes of one user run side by side"
    warning = "under mps a fatal fault of one job ends all jobs of its user on this gpu"
    divides_space = True
    is_live = False

    def variables(self, spec: JobSpec, sm_count: int) -> dict[str, str]:
        """Return the job's part of the SMs, and a lower priority unless it is of class latency.

        MPS has only two priorities. Turns decide which of the other jobs go first.
        """
        said = {}
        if spec.sm_count and sm_count:
            said["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = f"{100 * spec.sm_count / sm_count:.4g}"
        elif spec.sm_percent:
            said["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = f"{spec.sm_percent}"
        if spec.job_class is not JobClass.LATENCY:
            said["CUDA_MPS_CLIENT_PRIORITY"] = BELOW_NORMAL
        return said
