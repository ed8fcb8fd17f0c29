"""Which modes can work on each GPU of this machine, and why the others cannot.

A mode works if none of its checks objects. The checks use facts that are collected once, so that
the daemon at its start and `tandem doctor` come to the same result.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tandem import _mps

ANSWER_S = 2.0
GREEN_SINCE = 12050  # cuGreenCtxStreamCreate is new in CUDA 12.5
# Minimum SMs of a set, by major compute capability (CUDA driver API, "Green Contexts").
_LEAST_SMS, LEAST_SMS = {6: 1, 7: 2, 8: 4}, 8
DEFAULT, EXCLUSIVE_THREAD, PROHIBITED, EXCLUSIVE_PROCESS = range(4)  # NVML_COMPUTEMODE_*
COMPUTE_MODES = ("default", "exclusive-thread", "prohibited", "exclusive-process")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """The settings and properties of one GPU."""

    index: int
    uuid: str = ""
    compute_mode: int = DEFAULT
    has_mig_on: bool | None = None  # None: the GPU has no MIG
    instances: int = 0  # number of MIG instances
    is_software: bool = False
    sm_count: int = 0  # 0: not known
    major: int = 0  # of its compute capability; 0: not known


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The facts that hold for all GPUs."""

    uid: int  # of the process that checks
    cuda_version: int = 0  # of the driver, as 13000; 0 = not known
    can_start_mps: bool = False
    mps_owner: int | None = None  # uid of the control daemon in use; None: there is none
    software_mps: bool = False  # the software GPU runs its clients concurrently, as under MPS


Check = Callable[[GpuFacts, Machine], str]  # the objection; empty: none


def _is_whole(gpu: GpuFacts, _machine: Machine) -> str:
    return "MIG is on, so its instances are what is shared" if gpu.has_mig_on else ""


def _takes_two_contexts(gpu: GpuFacts, _machine: Machine) -> str:
    if gpu.compute_mode == DEFAULT:
        return ""
    return f"compute mode {COMPUTE_MODES[gpu.compute_mode]}: a second job gets no context"


def _takes_a_context(gpu: GpuFacts, _machine: Machine) -> str:
    return "compute mode prohibited" if gpu.compute_mode == PROHIBITED else ""


def _has_mps(gpu: GpuFacts, machine: Machine) -> str:
    if machine.can_start_mps or machine.mps_owner is not None:
        return ""
    if gpu.is_software and machine.software_mps:
        return ""
    return f"no {_mps.PROGRAM} on the PATH"


def _is_served_by_mps(_gpu: GpuFacts, machine: Machine) -> str:
    if _mps.serves(machine.mps_owner, machine.uid):
        return ""
    return f"the running mps is of uid {machine.mps_owner} and serves no other"


def _has_green_contexts(_gpu: GpuFacts, machine: Machine) -> str:
    if not 0 < machine.cuda_version < GREEN_SINCE:
        return ""
    major, minor = machine.cuda_version // 1000, machine.cuda_version % 1000 // 10
    return f"streams of green contexts need CUDA 12.5, but the driver has {major}.{minor}"


def _has_two_sets(gpu: GpuFacts, _machine: Machine) -> str:
    least = _LEAST_SMS.get(gpu.major, LEAST_SMS)
    if not 0 < gpu.sm_count < 2 * least:
        return ""
    return f"two sets of SMs take {2 * least} SMs, but it has {gpu.sm_count}"


def _can_be_cut(gpu: GpuFacts, _machine: Machine) -> str:
    return "this gpu has no MIG" if gpu.has_mig_on is None else ""


def _is_cut(gpu: GpuFacts, _machine: Machine) -> str:
    if gpu.has_mig_on is None or gpu.instances:
        return ""
    return "it is not cut into instances: `tandem partition apply --mig`"


_MPS = (_is_whole, _takes_a_context, _has_mps, _is_served_by_mps)

# Mode -> its checks, in the order in which objections are reported.
CHECKS: Mapping[str, tuple[Check, ...]] = {
    "time": (_is_whole, _takes_two_contexts),
    "mps": _MPS,
    "mps+green": (*_MPS, _has_green_contexts, _has_two_sets),
    "mig": (_can_be_cut, _is_cut),
}


def objections(gpu: GpuFacts, machine: Machine) -> dict[str, str]:
    """Mode -> the first objection to it on this GPU; empty: the mode works."""
    return {
        mode: next((why for check in checks if (why := check(gpu, machine))), "")
        for mode, checks in CHECKS.items()
    }


def machine_of(environment: Mapping[str, str], own_pipes: Path) -> Machine:
    """Collect the facts for all GPUs; `own_pipes` is where the daemon would run its own MPS.

    Blocks while control daemons answer, at most `ANSWER_S` for each place.
    """
    clean = {name: value for name, value in environment.items() if name != "LD_PRELOAD"}
    places = dict.fromkeys((_mps.pipes_of(clean), own_pipes))
    answering = (
        place
        for place in places
        if _mps.Control(place, environment=clean, timeout_s=ANSWER_S).servers() is not None
        or (place == own_pipes and not _mps.serves(_mps.owner_of(place), os.geteuid()))
    )
    place = next(answering, None)
    return Machine(
        uid=os.geteuid(),
        cuda_version=_cuda_version(),
        can_start_mps=_mps.can_start(clean),
        mps_owner=None if place is None else _mps.owner_of(place),
        software_mps=environment.get("TANDEM_SOFTGPU_MODE") == "mps",
    )


def gpus_of_nvml() -> Sequence[GpuFacts]:
    """Read the facts of each GPU from NVML.

    Raises:
        ImportError: there is no Python module for NVML.
        OSError: there is no driver, or it does not answer.
    """
    import pynvml as nvml

    def facts(index: int) -> GpuFacts:
        device = nvml.nvmlDeviceGetHandleByIndex(index)
        name = nvml.nvmlDeviceGetName(device)
        has_mig_on = _has_mig_on(device)
        return GpuFacts(
            index=index,
            uuid=_text(nvml.nvmlDeviceGetUUID(device)),
            compute_mode=int(nvml.nvmlDeviceGetComputeMode(device)),
            has_mig_on=has_mig_on,
            instances=_instances(device) if has_mig_on else 0,
            is_software="Tandem Software GPU" in _text(name),
            sm_count=sm_count_of(nvml, device),
            major=(_capability(nvml, device) or (0, 0))[0],
        )

    try:
        nvml.nvmlInit()
        return [facts(index) for index in range(nvml.nvmlDeviceGetCount())]
    except nvml.NVMLError as exc:
        raise OSError(str(exc)) from exc


def sm_count_of(nvml: Any, device: object) -> int:  # noqa: ANN401 - a module
    """The number of SMs of a device; 0: NVML does not tell.

    NVML counts cores; how many an SM has depends on the architecture.
    """
    capability = _capability(nvml, device)
    try:
        cores = int(nvml.nvmlDeviceGetNumGpuCores(device)) if capability else 0
    except (nvml.NVMLError, AttributeError):
        return 0
    return cores // (64 if capability in {(6, 0), (7, 0), (7, 5), (8, 0)} else 128)


def _capability(nvml: Any, device: object) -> tuple[int, int] | None:  # noqa: ANN401 - a module
    try:
        major, minor = nvml.nvmlDeviceGetCudaComputeCapability(device)
    except (nvml.NVMLError, AttributeError):
        return None
    return int(major), int(minor)


def _text(said: str | bytes) -> str:
    """Older NVML modules return bytes."""
    return said.decode() if isinstance(said, bytes) else said


def _has_mig_on(device: object) -> bool | None:
    import pynvml as nvml

    try:
        return bool(nvml.nvmlDeviceGetMigMode(device)[0])
    except nvml.NVMLError:  # this GPU has no MIG
        return None


def _instances(device: object) -> int:
    import pynvml as nvml

    count = 0
    for place in range(nvml.nvmlDeviceGetMaxMigDeviceCount(device)):
        try:
            nvml.nvmlDeviceGetMigDeviceHandleByIndex(device, place)
        except nvml.NVMLError_NotFound:
            continue
        count += 1
    return count


def _cuda_version() -> int:
    try:
        import pynvml as nvml
    except ImportError:
        return 0
    try:
        nvml.nvmlInit()
        return int(nvml.nvmlSystemGetCudaDriverVersion_v2())
    except nvml.NVMLError:
        return 0
