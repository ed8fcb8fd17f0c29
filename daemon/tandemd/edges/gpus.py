"""The GPUs of this machine, through NVML; a machine without any has an empty list.

A GPU in MIG mode is listed as its instances: each has memory, SMs and a UUID of its own, and
nothing can run on the rest. NVML numbers an instance by its GPU, its GPU instance and the compute
instance within that (NVIDIA's "MIG User Guide"). Its index here is made of those numbers too, so
that it stays the same when others change.
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
# NVML errors of a GPU or driver that is gone or hangs (nvml.h): not initialised, no driver,
# timeout, lost interrupts, no library, GPU lost, reset required, operating system, unknown. By
# other errors a working GPU says that it does not tell, or not to everybody.
FAILURES = frozenset({1, 9, 10, 11, 12, 15, 16, 17, 999})

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """Where a MIG instance is."""

    gpu: int  # index of its GPU
    gpu_instance: int
    compute_instance: int = 0  # within the GPU instance; nearly all have one

    def __str__(self) -> str:
        numbers = (self.gpu, self.gpu_instance, self.compute_instance)
        return INSTANCE_MARK.join(map(str, numbers if self.compute_instance else numbers[:2]))

    @property
    def index(self) -> int:
        """Return an index unlike that of any other instance or GPU of the machine."""
        place = self.gpu_instance * COMPUTE_INSTANCES + self.compute_instance
        return MOST_GPUS * (self.gpu + 1) + place


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU, or MIG instance, as users know it."""

    index: int
    uuid: bytes  # 16 bytes, as CUuuid
    product_name: str = ""
    driver: str = ""  # its version
    memory_total_bytes: int = 0
    memory_used_bytes: int = 0
    sm_count: int = 0  # 0 = not known
    bandwidth_bytes_per_s: int = 0  # of its memory, by clock and bus; 0 = not known
    numa_node: int | None = None  # the nearest one; None = not known, or the machine has only one
    instance: Instance | None = None  # None: a whole GPU

    @property
    def name(self) -> str:
        """Return its index; for an instance the GPU's index and its own number: `0:2`."""
        return str(self.instance) if self.instance else str(self.index)

    @property
    def whole(self) -> int:
        """Return the index of the GPU that it is, or is an instance of."""
        return self.instance.gpu if self.instance else self.index

    @property
    def uuid_text(self) -> str:
        """Return `GPU-00112233-4455-6677-8899-aabbccddeeff`, or `MIG-..`, as NVML has it."""
        return f"{'MIG' if self.instance else 'GPU'}-{uuid.UUID(bytes=self.uuid)}"

    @property
    def kind(self) -> tuple[str, str]:
        """Return what measurements on it hold for: this GPU model under this driver."""
        return (self.product_name, self.driver)

    @property
    def is_software(self) -> bool:
        """Tell whether it is the project's own test device."""
        return SOFTWARE_NAME in self.product_name


@dataclass(frozen=True, slots=True)
class Holdings:
    """GPU memory that processes hold, by the driver's count."""

    by_pid: Mapping[int, tuple[int, ...]] = field(default_factory=dict)  # bytes on each GPU
    is_complete: bool = True  # every GPU was asked, and each figure is known
    # Pids, by GPU that reports them.
    running: Mapping[int, frozenset[int]] = field(default_factory=dict)
    failure: str = ""  # of NVML, on all GPUs; empty: one works, or there never was one


class Inventory(Protocol):
    """A source of GPUs."""

    def gpus(self) -> Sequence[Gpu]:
        """Return all GPUs and MIG instances, by index, with their memory use now. Any thread."""

    def refresh(self) -> None:
        """List the GPUs anew, because MIG instances come and go. Any thread.

        Raises:
            OSError: the driver does not answer; the GPUs known so far stay.
        """

    def holdings(self) -> Holdings:
        """Return what processes hold, according to the driver. Any thread."""

    def energy_mj(self) -> Mapping[int, int]:
        """Return the mJ each GPU has used since its driver was loaded, if counted. Any thread."""


class NvmlInventory:
    """GPUs as NVML lists them: none before the first `refresh` that finds a driver."""

    def __init__(self) -> None:
        import pynvml

        self._nvml = pynvml
        self._is_open = False
        self._found: Sequence[tuple[Gpu, object]] = ()  # with its handle; replaced as a whole
        self._silent: frozenset[int] = frozenset()  # GPUs that did not answer

    def refresh(self) -> None:
        """List all GPUs anew. One that does not answer stays as it was before, if it was known.

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
        """Return all GPUs; a memory use that cannot be read is zero."""
        return [
            replace(gpu, memory_used_bytes=self._used_bytes(handle)) for gpu, handle in self._found
        ]

    def holdings(self) -> Holdings:
        """Ask the driver what processes hold; what it does not report is left out."""
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
        """Read the energy counters. GPUs before Volta and MIG instances have none."""
        counted: dict[int, int] = {}
        for gpu, handle in self._found:
            if gpu.instance is None:
                # Not supported by this GPU or this NVML.
                with suppress(self._nvml.NVMLError, AttributeError):
                    counted[gpu.index] = int(self._nvml.nvmlDeviceGetTotalEnergyConsumption(handle))
        return counted

    def _on(self, index: int, handle: object) -> list[tuple[Gpu, object]]:
        """Describe the GPU, or in MIG mode its instances by number, which may be none."""
        whole = self._describe(index, handle)
        instances = [(self._describe_instance(whole, mig), mig) for mig in self._instances(handle)]
        is_cut = bool(instances) or self._has_mig_on(handle)
        return sorted(instances, key=lambda pair: pair[0].index) if is_cut else [(whole, handle)]

    def _has_mig_on(self, handle: object) -> bool:
        try:
            return bool(self._nvml.nvmlDeviceGetMigMode(handle)[0])
        except (self._nvml.NVMLError, AttributeError):  # not supported by this GPU or this NVML
            return False

    def _instances(self, handle: object) -> list[object]:
        nvml = self._nvml
        if not self._has_mig_on(handle):
            return []
        found = []
        for place in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
            try:
                found.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place))
            except nvml.NVMLError_NotFound:  # places need not be filled in order
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
        # Memory slices come with their part of the bus; NVML reports no bandwidth of instances.
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
        # Memory transfers on both edges of its clock (MHz); the bus width is in bits.
        nvml = self._nvml
        try:
            clock = int(nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_MEM))
            return 2 * clock * 1_000_000 * int(nvml.nvmlDeviceGetMemoryBusWidth(handle)) // 8
        except (nvml.NVMLError, AttributeError):
            return 0


def numa_node_of(bus_id: str, devices: Path = Path("/sys/bus/pci/devices")) -> int | None:
    """Look up a PCI device's NUMA node by NVML's name, `00000000:3B:00.0`; None: not known."""
    domain, _, rest = bus_id.lower().partition(":")
    try:
        node = int((devices / f"{domain[-4:]}:{rest}" / "numa_node").read_text())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def find_inventory(*, for_jobs: bool = False) -> Inventory:
    """Return NVML's inventory, with the GPUs that it lists now.

    `for_jobs`: a daemon asks, so somebody should know that it has nothing to share.
    """
    inventory = NvmlInventory()
    try:
        inventory.refresh()
    except OSError as error:
        tell = log.warning if for_jobs else log.info
        tell("no GPU found, continuing without an inventory", reason=str(error))
    return inventory


class GpuIndex:
    """Maps UUIDs that processes name to indices. One that NVML did not list gets the next index."""

    def __init__(self, gpus: Sequence[Gpu]) -> None:
        self._gpus: Sequence[Gpu] = ()
        self._by_uuid: dict[bytes, int] = {}
        self.learn(gpus)

    def learn(self, gpus: Sequence[Gpu]) -> None:
        """Replace the known GPUs; UUIDs that were named but are not NVML's keep their indices."""
        gone = {gpu.uuid for gpu in self._gpus}
        others = {uuid: index for uuid, index in self._by_uuid.items() if uuid not in gone}
        self._gpus = gpus
        self._by_uuid = others | {gpu.uuid: gpu.index for gpu in gpus}

    @property
    def gpus(self) -> Sequence[Gpu]:
        """Return the GPUs as last learnt, without asking the driver."""
        return self._gpus

    def of(self, device_uuids: Sequence[bytes]) -> int:
        """Return the index of the first device that a process can see; 0 if it names none."""
        if not device_uuids:
            return 0
        first = bytes(device_uuids[0])
        if first not in self._by_uuid and len(self._by_uuid) < MOST_GPUS:
            whole = [index for index in self._by_uuid.values() if index < MOST_GPUS]
            self._by_uuid[first] = max(whole, default=-1) + 1
        return self._by_uuid.get(first, 0)

    def instance(self, name: str) -> Gpu | None:
        """Return the MIG instance with this name, such as `0:2`."""
        return next((gpu for gpu in self._gpus if gpu.instance and gpu.name == name), None)

    def named(self, name: str) -> frozenset[int]:
        """Return the GPU with this index, name or UUID; empty if there is none, or no name.

        The index of a GPU in MIG mode means its first instance, as it does to CUDA.
        """
        if (instance := self.instance(name)) is not None:
            return frozenset({instance.index})
        if name.isascii() and name.isdigit():
            whole = frozenset(self._by_uuid.values()) & {int(name)} - self._instances()
            return whole or self._first_instance(int(name))
        uuid = uuid_bytes(name)
        return frozenset({self._by_uuid[uuid]} if any(uuid) and uuid in self._by_uuid else ())

    def by_uuid(self, names: str) -> str:
        """Replace the indices of whole GPUs in a comma-separated list by UUIDs."""
        known = {gpu.index: gpu.uuid_text for gpu in self._gpus if gpu.instance is None}

        def renamed(name: str) -> str:
            return known.get(int(name), name) if name.isascii() and name.isdigit() else name

        return ",".join(renamed(name.strip()) for name in names.split(","))

    def missing(self, names: str) -> str:
        """Return the first name of a comma-separated list that cannot exist; empty: all may.

        If NVML lists no GPU, only the names of instances can be ruled out.
        """
        for name in filter(None, map(str.strip, names.split(","))):
            may_be = self._begins_a_uuid(name) if self._gpus else INSTANCE_MARK not in name
            if not may_be and not self.named(name):
                return name
        return ""

    def _begins_a_uuid(self, name: str) -> bool:
        """Tell whether a name may mean a GPU; CUDA accepts the start of a UUID, case-insensitive.

        GPUs in MIG mode are not listed under their own UUIDs, and older names of instances contain
        those.
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
    """Convert `GPU-8f3c..` to 16 bytes; zeros if it is malformed."""
    try:
        return uuid.UUID(text.partition("-")[2]).bytes
    except ValueError:
        return bytes(16)


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
