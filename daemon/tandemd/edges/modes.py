"""Whether kernels of several processes run side by side on a GPU, as far as can be seen here."""

from __future__ import annotations

from collections.abc import Mapping

from tandem import _mps
from tandemd.edges.gpus import Gpu


def found_mode(gpu: Gpu, environment: Mapping[str, str]) -> str:
    """`mig` of an instance, `mps` where the pipe of MPS is found as a program would find it.

    Not a pipe that belongs neither to root nor to our own user, and none without MPS's program,
    which says whether anybody is at its other end.

    A program of this environment, that is: those that start with another `CUDA_MPS_PIPE_DIRECTORY`
    have another mode, and the configuration has to say it. The software GPU has a mode of its own.
    """
    if gpu.instance is not None:
        return "mig"
    if has_own_mps(gpu, environment):
        return "mps"
    has_mps = _mps.has_pipe(_mps.pipes_of(environment)) and _mps.can_start(environment)
    return "mps" if has_mps else "time"


def has_own_mps(gpu: Gpu, environment: Mapping[str, str]) -> bool:
    """A software GPU that runs contexts side by side needs no control daemon for it."""
    return gpu.is_software and environment.get("TANDEM_SOFTGPU_MODE") == "mps"
