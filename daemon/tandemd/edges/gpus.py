"""The GPUs of this machine, through NVML; a machine without any has an empty list.

A GPU with MIG on is its instances: each has memory, SMs and a UUID of its own, and nothing can be
started on the rest. NVML counts an instance by its GPU, its GPU instance and the compute instance
in that (NVIDIA's "MIG User Guide"); those numbers make its index here, too, so that it stays the
same however the others change.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import structlog

from tandem._fitness import sm_count_of
from tandemd.core.memory.memories import COMPUTE_INSTANCES, MOST_GPUS

SOFTWARE_NAME = "Tandem Software GPU"
INSTANCE_MARK = ":"  # between the numbers of an instance
# Errors of a GPU, or a driver, that is gone or hangs (nvml.h): NVML is not open, no driver, a time
# is over, lost interrupts, no library, the GPU is lost, it needs a reset, the system, unknown. By
# others a working one says that it does not tell, or not to everybody.
FAILURES = frozenset({1, 9, 10, 11, 12, 15, 16, 17, 999})

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """Where a MIG instance is."""

    gpu: int  # its index
    gpu_instance: int
    compute_instance: int = 0  # of that; by far most have one

    def __str__(self) -> str:
        numbers = (self.gpu, self.gpu_instance, self.compute_instance)
        return INSTANCE_MARK.join(map(str, numbers if self.compute_instance else numbers[:2]))

    @property
    def index(self) -> int:
        """Unlike that of any other instance or GPU of the machine."""
        place = self.gpu_instance * COMPUTE_INSTANCES + self.compute_instance
        return MOST_GPUS * (self.gpu + 1) + place


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU, or MIG instance, as people know it."""

    index: int
    uuid: bytes  # 16 bytes, as CUuuid
    product_name: str = ""
    driver: str = ""  # its version
    memory_total_bytes: int = 0
    memory_used_bytes: int = 0
    sm_count: int = 0  # 0 = not known
    bandwidth_bytes_per_s: int = 0  # of its memory, by clock and bus; 0 = not known
    numa_node: int | None = None  # that it is next to; None = not known, or the machine has one
    instance: Instance | None = None  # None: a whole GPU

    @property
    def name(self) -> str:
        """Its index; of an instance that of its GPU and its own: `0:2`."""
        return str(self.instance) if self.instance else str(self.index)

    @property
    def whole(self) -> int:
        """The index of the GPU that it is, or is an instance of."""
        return self.instance.gpu if self.instance else self.index

    @property
    def uuid_text(self) -> str:
        """`GPU-00112233-4455-6677-8899-aabbccddeeff`, or `MIG-..`, as NVML says it."""
        return f"{'MIG' if self.instance else 'GPU'}-{uuid.UUID(bytes=self.uuid)}"

    @property
    def kind(self) -> tuple[str, str]:
        """What figures that were measured on it hold for: such a GPU, under this driver."""
        return (self.product_name, self.driver)

    @property
    def is_software(self) -> bool:
        """The project's own test device."""
        return SOFTWARE_NAME in self.product_name


@dataclass(frozen=True, slots=True)
class Holdings:
    """What processes hold of the memory of GPUs, by the driver's count."""

    by_pid: Mapping[int, tuple[int, ...]] = field(default_factory=dict)  # bytes on each GPU
    is_complete: bool = True  # every GPU was asked, and each figure is known
    running: Mapping[int, frozenset[int]] = field(default_factory=dict)  # pids, by GPU that says it
    failure: str = ""  # of NVML, on all GPUs that there are; empty: one works, or there never was


class Inventory(Protocol):
    """Where GPUs come from."""

    def gpus(self) -> Sequence[Gpu]:
        """All GPUs and MIG instances, by index, with their memory use now. Any thread."""

    def refresh(self) -> None:
        """Look which there are, as instances of MIG come and go. Any thread.

        Raises:
            OSError: the driver does not answer; those that were known stay.
        """

    def holdings(self) -> Holdings:
        """What the driver says that processes hold. Any thread."""

    def energy_mj(self) -> Mapping[int, int]:
        """What each GPU took since its driver was loaded, in mJ, where that is told. Any thread."""


class NvmlInventory:
    """GPUs as NVML lists them: none before the first `refresh` that finds a driver."""

    def __init__(self) -> None:
        import pynvml

        self._nvml = pynvml
        self._is_open = False
        self._found: Sequence[tuple[Gpu, object]] = ()  # with its handle; replaced as a whole
        self._silent: frozenset[int] = frozenset()  # those that do not say what they are

    def refresh(self) -> None:
        """Ask for all of them anew. One that does not answer is what it was before, if anything.

        Raises:
            OSError: there is no driver, or it does not answer.
        """
        nvml = self._nvml
        try:
            if not self._is_open:
                nvml.nvmlInit()
                self._is_open = True
            count = nvml.nvmlDeviceGetCount()
        except nvml.NVMLError as error:
            raise OSError(f"NVML: {error}") from error
        found: list[tuple[Gpu, object]] = []
        silent = set()
        for index in range(count):
            try:
                found += self._on(index, nvml.nvmlDeviceGetHandleByIndex(index))
            except nvml.NVMLError as error:
                found += [pair for pair in self._found if pair[0].whole == index]
                silent.add(index)
                if index not in self._silent:
                    log.warning("a GPU does not answer", gpu=index, reason=str(error))
        self._found, self._silent = found, frozenset(silent)

    def gpus(self) -> Sequence[Gpu]:
        """All GPUs; a figure that cannot be read is zero."""
        return [
            replace(gpu, memory_used_bytes=self._used_bytes(handle)) for gpu, handle in self._found
        ]

    def holdings(self) -> Holdings:
        """Of a GPU, or a process, of which the driver does not say it, nothing is known."""
        held: dict[int, tuple[int, ...]] = {}
        on: dict[int, frozenset[int]] = {}
        is_complete = not self._silent
        found, failures = self._found, []
        for gpu, handle in found:
            try:
                running = self._nvml.nvmlDeviceGetComputeRunningProcesses(handle)
            except self._nvml.NVMLError as error:
                is_complete = False
                failures += [f"gpu {gpu.name}: {error}"] if error.value in FAILURES else []
                continue
            on[gpu.index] = frozenset(int(process.pid) for process in running)
            for process in running:
                is_complete &= process.usedGpuMemory is not None
                pid, size_bytes = int(process.pid), int(process.usedGpuMemory or 0)
                held[pid] = (*held.get(pid, ()), size_bytes)
        failure = "; ".join(failures) if len(failures) == len(found) else ""
        return Holdings(held, is_complete=is_complete, running=on, failure=failure)

    def energy_mj(self) -> Mapping[int, int]:
        """None of those before Volta, nor of MIG instances: it is counted of whole GPUs."""
        counted: dict[int, int] = {}
        for gpu, handle in self._found:
            if gpu.instance is None:
                with suppress(self._nvml.NVMLError, AttributeError):  # not of it, or of this NVML
                    counted[gpu.index] = int(self._nvml.nvmlDeviceGetTotalEnergyConsumption(handle))
        return counted

    def _on(self, index: int, handle: object) -> list[tuple[Gpu, object]]:
        """The GPU; with MIG on its instances, by their numbers, which may be none."""
        whole = self._describe(index, handle)
        instances = [(self._describe_instance(whole, mig), mig) for mig in self._instances(handle)]
        is_cut = bool(instances) or self._has_mig_on(handle)
        return sorted(instances, key=lambda pair: pair[0].index) if is_cut else [(whole, handle)]

    def _has_mig_on(self, handle: object) -> bool:
        try:
            return bool(self._nvml.nvmlDeviceGetMigMode(handle)[0])
        except (self._nvml.NVMLError, AttributeError):  # not of this GPU, or of this NVML
            return False

    def _instances(self, handle: object) -> list[object]:
        nvml = self._nvml
        if not self._has_mig_on(handle):
            return []
        found = []
        for place in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
            try:
                found.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place))
            except nvml.NVMLError_NotFound:  # places need not be taken in order
                continue
        return found

    def _describe_instance(self, whole: Gpu, handle: object) -> Gpu:
        nvml = self._nvml
        instance = Instance(
            gpu=whole.index,
            gpu_instance=int(nvml.nvmlDeviceGetGpuInstanceId(handle)),
            compute_instance=int(nvml.nvmlDeviceGetComputeInstanceId(handle)),
        )
        memory_bytes = int(nvml.nvmlDeviceGetMemoryInfo(handle).total)
        # Slices of memory come with their part of the bus; NVML tells no bandwidth of instances.
        part = memory_bytes / whole.memory_total_bytes if whole.memory_total_bytes else 0
        return Gpu(
            index=instance.index,
            uuid=uuid_bytes(_text(nvml.nvmlDeviceGetUUID(handle))),
            product_name=_text(nvml.nvmlDeviceGetName(handle)),
            driver=whole.driver,
            memory_total_bytes=memory_bytes,
            sm_count=int(nvml.nvmlDeviceGetAttributes_v2(handle).multiprocessorCount),
            bandwidth_bytes_per_s=int(whole.bandwidth_bytes_per_s * min(1.0, part)),
            numa_node=whole.numa_node,
            instance=instance,
        )

    def _describe(self, index: int, handle: object) -> Gpu:
        nvml = self._nvml
        return Gpu(
            index=index,
            uuid=uuid_bytes(_text(nvml.nvmlDeviceGetUUID(handle))),
            product_name=_text(nvml.nvmlDeviceGetName(handle)),
            driver=self._driver(),
            memory_total_bytes=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
            sm_count=sm_count_of(self._nvml, handle),
            bandwidth_bytes_per_s=self._bandwidth(handle),
            numa_node=self._numa_node(handle),
        )

    def _driver(self) -> str:
        try:
            return _text(self._nvml.nvmlSystemGetDriverVersion())
        except (self._nvml.NVMLError, AttributeError):
            return ""

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


def numa_node_of(bus_id: str, devices: Path = Path("/sys/bus/pci/devices")) -> int | None:
    """By NVML's name of a PCI device, `00000000:3B:00.0`; None where the kernel knows none."""
    domain, _, rest = bus_id.lower().partition(":")
    try:
        node = int((devices / f"{domain[-4:]}:{rest}" / "numa_node").read_text())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def find_inventory() -> Inventory:
    """That of NVML, with the GPUs that it lists now."""
    inventory = NvmlInventory()
    try:
        inventory.refresh()
    except OSError as error:
        log.info("no GPU seen, continuing without an inventory", reason=str(error))
    return inventory


class GpuIndex:
    """Which GPU a process means: UUID -> index. A UUID that NVML did not list gets the next one."""

    def __init__(self, gpus: Sequence[Gpu]) -> None:
        self._gpus: Sequence[Gpu] = ()
        self._by_uuid: dict[bytes, int] = {}
        self.learn(gpus)

    def learn(self, gpus: Sequence[Gpu]) -> None:
        """These there are from now on; what else was named before keeps its index."""
        gone = {gpu.uuid for gpu in self._gpus}
        others = {uuid: index for uuid, index in self._by_uuid.items() if uuid not in gone}
        self._gpus = gpus
        self._by_uuid = others | {gpu.uuid: gpu.index for gpu in gpus}

    @property
    def gpus(self) -> Sequence[Gpu]:
        """Those that are there, as they were learnt: the driver is not asked."""
        return self._gpus

    def of(self, device_uuids: Sequence[bytes]) -> int:
        """The index of the first device a process can see; 0 if it names none."""
        if not device_uuids:
            return 0
        first = bytes(device_uuids[0])
        if first not in self._by_uuid and len(self._by_uuid) < MOST_GPUS:
            whole = [index for index in self._by_uuid.values() if index < MOST_GPUS]
            self._by_uuid[first] = max(whole, default=-1) + 1
        return self._by_uuid.get(first, 0)

    def instance(self, name: str) -> Gpu | None:
        """The MIG instance that is called so, such as `0:2`."""
        return next((gpu for gpu in self._gpus if gpu.instance and gpu.name == name), None)

    def named(self, name: str) -> frozenset[int]:
        """The one with this index, name or UUID; none if there is none, or the name is empty.

        The index of a GPU with MIG on means its first instance, as it does to CUDA.
        """
        if (instance := self.instance(name)) is not None:
            return frozenset({instance.index})
        if name.isascii() and name.isdigit():
            whole = frozenset(self._by_uuid.values()) & {int(name)} - self._instances()
            return whole or self._first_instance(int(name))
        uuid = uuid_bytes(name)
        return frozenset({self._by_uuid[uuid]} if any(uuid) and uuid in self._by_uuid else ())

    def by_uuid(self, names: str) -> str:
        """The same list, with commas between, with UUIDs in place of the indices of whole GPUs."""
        known = {gpu.index: gpu.uuid_text for gpu in self._gpus if gpu.instance is None}

        def renamed(name: str) -> str:
            return known.get(int(name), name) if name.isascii() and name.isdigit() else name

        return ",".join(renamed(name.strip()) for name in names.split(","))

    def missing(self, names: str) -> str:
        """The first of these, with commas between, that is not there; empty: all may be.

        Nothing can be said where NVML lists no GPU, but that there is no instance.
        """
        for name in filter(None, map(str.strip, names.split(","))):
            may_be = self._begins_a_uuid(name) if self._gpus else INSTANCE_MARK not in name
            if not may_be and not self.named(name):
                return name
        return ""

    def _begins_a_uuid(self, name: str) -> bool:
        """That of one which is listed, or may be; CUDA takes the beginning, in any case.

        Those of GPUs that are cut are not listed, and older names of instances are made of them.
        """
        if name.startswith("MIG-GPU-") or (name.startswith("GPU-") and self._instances()):
            return True
        begins = name.startswith(("GPU-", "MIG-"))
        listed = (gpu.uuid_text.lower() for gpu in self._gpus)
        return begins and any(uuid.startswith(name.lower()) for uuid in listed)

    def _instances(self) -> frozenset[int]:
        return frozenset(gpu.index for gpu in self._gpus if gpu.instance)

    def _first_instance(self, whole: int) -> frozenset[int]:
        on_it = [gpu.index for gpu in self._gpus if gpu.instance and gpu.instance.gpu == whole]
        return frozenset(on_it[:1])


def uuid_bytes(text: str) -> bytes:
    """`GPU-8f3c..` as 16 bytes; zeros when it is none."""
    try:
        return uuid.UUID(text.partition("-")[2]).bytes
    except ValueError:
        return bytes(16)


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
