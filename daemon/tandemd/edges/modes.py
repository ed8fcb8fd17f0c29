"""Tells whether kernels of several processes run side by side on a GPU, as far as visible here."""

from __future__ import annotations

from collections.abc import Mapping

from tandem import _mps
from tandemd.edges.gpus import Gpu


def found_mode(gpu: Gpu, environment: Mapping[str, str]) -> str:
    """Return `mig` for an instance, and `mps` where a program would find a pipe of MPS.

    The pipe must belong to root or to our own user, and MPS's program must be installed, because
    only that can tell whether anybody is at the other end.

    This holds for programs with this environment. Those started with another
    `CUDA_MPS_PIPE_DIRECTORY` are in another mode, and the configuration has to say so. The software
    GPU has a mode of its own.
    """
    if gpu.instance is not None:
        return "mig"
    if has_own_mps(gpu, environment):
        return "mps"
    has_mps = _mps.has_pipe(_mps.pipes_of(environment)) and _mps.can_start(environment)
    return "mps" if has_mps else "time"


def has_own_mps(gpu: Gpu, environment: Mapping[str, str]) -> bool:
    """Tell whether it is a software GPU in mode mps, which needs no control daemon for that."""
    return gpu.is_software and environment.get("TANDEM_SOFTGPU_MODE") == "mps"
