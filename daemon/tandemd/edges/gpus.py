"""The GPUs of this machine, through NVML; a machine without any has an empty list."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import structlog

SOFTWARE_NAME = "Tandem Software GPU"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU as people know it."""

    index: int
    uuid: bytes  # 16 bytes, as CUuuid
    product_name: str = ""
    memory_total_bytes: int = 0
    memory_used_bytes: int = 0
    sm_count: int = 0  # 0 = not known
    bandwidth_bytes_per_s: int = 0  # of its memory, by clock and bus; 0 = not known
    numa_node: int | None = None  # that it is next to; None = not known, or the machine has one

    @property
    def uuid_text(self) -> str:
        """`GPU-00112233-4455-6677-8899-aabbccddeeff`, as NVML says it."""
        return f"GPU-{uuid.UUID(bytes=self.uuid)}"

    @property
    def is_software(self) -> bool:
        """The project's own test device."""
        return SOFTWARE_NAME in self.product_name


class Inventory(Protocol):
    """Where GPUs come from."""

    def gpus(self) -> Sequence[Gpu]:
        """All GPUs, by index, with their memory use now. Any thread."""

    def held_bytes(self) -> Mapping[int, tuple[int, ...]]:
        """What the driver says that processes hold on each GPU they are on, by pid. Any thread."""


class NoGpus:
    """A machine without a driver."""

    def gpus(self) -> Sequence[Gpu]:
        """None."""
        return ()

    def held_bytes(self) -> Mapping[int, tuple[int, ...]]:
        """Nothing."""
        return {}


class NvmlInventory:
    """GPUs as NVML lists them."""

    def __init__(self) -> None:
        """Initialise NVML.

        Raises:
            OSError: there is no driver, or it does not answer.
        """
        import pynvml

        self._nvml = pynvml
        try:
            pynvml.nvmlInit()
            self._handles = [
                pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())
            ]
            self._gpus = [self._describe(i, handle) for i, handle in enumerate(self._handles)]
        except pynvml.NVMLError as error:
            raise OSError(f"NVML: {error}") from error

    def gpus(self) -> Sequence[Gpu]:
        """All GPUs; a figure that cannot be read is zero."""
        pairs = zip(self._gpus, self._handles, strict=True)
        return [replace(gpu, memory_used_bytes=self._used_bytes(handle)) for gpu, handle in pairs]

    def held_bytes(self) -> Mapping[int, tuple[int, ...]]:
        """By pid; a GPU whose driver does not say it is left out."""
        held: dict[int, tuple[int, ...]] = {}
        for handle in self._handles:
            try:
                running = self._nvml.nvmlDeviceGetComputeRunningProcesses(handle)
            except self._nvml.NVMLError:
                continue
            for process in running:
                pid, size_bytes = int(process.pid), int(process.usedGpuMemory or 0)
                held[pid] = (*held.get(pid, ()), size_bytes)
        return held

    def _describe(self, index: int, handle: object) -> Gpu:
        nvml = self._nvml
        return Gpu(
            index=index,
            uuid=uuid_bytes(_text(nvml.nvmlDeviceGetUUID(handle))),
            product_name=_text(nvml.nvmlDeviceGetName(handle)),
            memory_total_bytes=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
            sm_count=self._sm_count(handle),
            bandwidth_bytes_per_s=self._bandwidth(handle),
            numa_node=self._numa_node(handle),
        )

    def _used_bytes(self, handle: object) -> int:
        try:
            return int(self._nvml.nvmlDeviceGetMemoryInfo(handle).used)
        except self._nvml.NVMLError:
            return 0

    def _numa_node(self, handle: object) -> int | None:
        try:
            return numa_node_of(_text(self._nvml.nvmlDeviceGetPciInfo(handle).busId))
        except (self._nvml.NVMLError, AttributeError):
            return None

    def _bandwidth(self, handle: object) -> int:
        # Memory moves data at both edges of its clock (MHz); the bus is counted in bits.
        nvml = self._nvml
        try:
            clock = int(nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_MEM))
            return 2 * clock * 1_000_000 * int(nvml.nvmlDeviceGetMemoryBusWidth(handle)) // 8
        except (nvml.NVMLError, AttributeError):
            return 0

    def _sm_count(self, handle: object) -> int:
        # NVML counts cores; what a multiprocessor has of them depends on the architecture.
        nvml = self._nvml
        try:
            major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
            cores = int(nvml.nvmlDeviceGetNumGpuCores(handle))
        except (nvml.NVMLError, AttributeError):
            return 0
        return cores // (64 if (major, minor) in {(6, 0), (7, 0), (7, 5), (8, 0)} else 128)


def numa_node_of(bus_id: str, devices: Path = Path("/sys/bus/pci/devices")) -> int | None:
    """By NVML's name of a PCI device, `00000000:3B:00.0`; None where the kernel knows none."""
    domain, _, rest = bus_id.lower().partition(":")
    try:
        node = int((devices / f"{domain[-4:]}:{rest}" / "numa_node").read_text())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def find_inventory() -> Inventory:
    """NVML where there is a driver, else nothing."""
    try:
        return NvmlInventory()
    except (OSError, ImportError) as error:
        log.info("no GPU seen, continuing without an inventory", reason=str(error))
        return NoGpus()


class GpuIndex:
    """Which GPU a process means: UUID -> index. A UUID that NVML did not list gets the next one."""

    def __init__(self, gpus: Sequence[Gpu]) -> None:
        self._by_uuid = {gpu.uuid: gpu.index for gpu in gpus}

    def of(self, device_uuids: Sequence[bytes]) -> int:
        """The index of the first device a process can see; 0 if it names none."""
        if not device_uuids:
            return 0
        first = bytes(device_uuids[0])
        if first not in self._by_uuid and len(self._by_uuid) < 64:
            self._by_uuid[first] = max(self._by_uuid.values(), default=-1) + 1
        return self._by_uuid.get(first, 0)

    def named(self, name: str) -> frozenset[int]:
        """The one with this index or UUID; none if there is no such GPU, or the name is empty."""
        if name.isascii() and name.isdigit():
            return frozenset(self._by_uuid.values()) & {int(name)}
        uuid = uuid_bytes(name)
        return frozenset({self._by_uuid[uuid]} if any(uuid) and uuid in self._by_uuid else ())


def uuid_bytes(text: str) -> bytes:
    """`GPU-8f3c..` as 16 bytes; zeros when it is none."""
    try:
        return uuid.UUID(text.partition("-")[2]).bytes
    except ValueError:
        return bytes(16)


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
