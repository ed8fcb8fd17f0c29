"""Random allocations of every kind under the shim, checked against a model of what is held.

    python tests/property/accounts_model.py SOCKET_FOLDER [KIND]

Runs in the environment of the software GPU with the shim preloaded. After each step the shim's
counter must equal the model's, and agree with the device's ledger. With a KIND, one call in four
about memory of that kind bypasses the shim and goes to the driver's own function: the comparison
has to notice that, and the program then exits with 3.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shim"))

from cuda.bindings import driver as cu
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)
from shim_daemon import VIRTUAL, FakeDaemon

GRANULE = 2 << 20
CONTEXT_BYTES = 8 << 20  # the size of a context on the tiny device
SUCCESS = cu.CUresult.CUDA_SUCCESS
SIZES = st.sampled_from([1, 4096, 1_000_000, 3 << 20])
FEW = st.integers(1, 3)


def ok(result):
    status, *values = result
    assert status == SUCCESS, status
    return values[0] if values else None


def refused(result):
    assert result[0] != SUCCESS


class Driver:
    """The driver's own functions, whose calls the shim does not see."""

    def __init__(self) -> None:
        with open("/proc/self/maps") as maps:
            line = next(entry for entry in maps if "libcuda.so.1" in entry)
        self._base = int(line.split("-")[0], 16)
        listed = subprocess.run(
            ["nm", "-D", line.split()[-1]], capture_output=True, text=True, check=True, env={}
        )
        rows = [row.split() for row in listed.stdout.splitlines()]
        self._offsets = {row[2]: int(row[0], 16) for row in rows if len(row) == 3}

    def call(self, name: str, *arguments: int) -> None:
        function = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_uint64] * len(arguments))
        assert function(self._base + self._offsets[name])(*arguments) == 0

    def allocate_async(self, size: int, stream: object) -> int:
        address = ctypes.c_uint64()
        self.call("cuMemAllocAsync", ctypes.addressof(address), size, int(stream))
        return address.value


@dataclass
class Pool:
    handle: object
    is_default: bool = False
    allocations: set[int] = field(default_factory=set)

    def reserved(self) -> int:
        which = cu.CUmemPool_attribute.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT
        return int(ok(cu.cuMemPoolGetAttribute(self.handle, which)))


@dataclass
class Physical:
    handle: object
    bytes: int
    handles: int = 1
    mappings: int = 0

    @property
    def is_held(self) -> bool:
        return self.handles + self.mappings > 0


class Accounts(RuleBasedStateMachine):
    """The shim's count of held memory equals the model's and the device ledger's."""

    linear = Bundle("linear")  # addresses
    arrays = Bundle("arrays")  # handles
    pools = Bundle("pools")
    pooled = Bundle("pooled")  # (address, pool)
    handles = Bundle("handles")  # physical memory, once per handle
    mappings = Bundle("mappings")  # (address, physical)

    attached = None
    driver = None
    plant = ""
    differed = False

    @initialize()
    def start(self):
        # A context of its own, so that it can be destroyed; the primary one keeps the pools.
        self.context = ok(cu.cuCtxCreate(None, 0, 0))
        self.stream = ok(cu.cuStreamCreate(0))
        self.held: dict[int, int] = {}  # linear memory and arrays, in bytes
        self.of_context: set[int] = set()
        self.physicals: list[Physical] = []
        self.mapped: list[tuple[int, Physical]] = []
        self.default = Pool(ok(cu.cuDeviceGetDefaultMemPool(0)), is_default=True)
        self.live = [self.default]
        self.leaving = 0  # returned at the next wait
        self.lingering: list[tuple[Pool, int]] = []  # destroyed pools and what they held
        self.graphs_hold = 0
        self.chances = 0

    def teardown(self):
        self.wait()
        for address, physical in self.mapped:
            ok(cu.cuMemUnmap(address, physical.bytes))
            ok(cu.cuMemAddressFree(address, physical.bytes))
        for physical in self.physicals:
            for _ in range(physical.handles):
                ok(cu.cuMemRelease(physical.handle))
        ok(cu.cuCtxDestroy(self.context))
        for pool in [*self.live, *(pool for pool, _ in self.lingering)]:
            for address in pool.allocations:
                ok(cu.cuMemFree(address))
        ok(cu.cuCtxSynchronize())
        for pool in self.live:
            ok(cu.cuMemPoolTrimTo(pool.handle, 0))
            if not pool.is_default:
                ok(cu.cuMemPoolDestroy(pool.handle))
        ok(cu.cuCtxSynchronize())
        ok(cu.cuDeviceGraphMemTrim(0))

    def round_the_shim(self, kind: str) -> bool:
        self.chances += kind == self.plant
        return kind == self.plant and self.chances % 4 == 1

    # Linear memory.

    @rule(target=linear, size=SIZES)
    def allocate(self, size):
        address = int(ok(cu.cuMemAlloc(size)))
        self.held[address] = size
        self.of_context.add(address)
        return address

    @rule(target=linear, width=st.sampled_from([1, 500, 5000]), height=FEW)
    def allocate_pitch(self, width, height):
        address, pitch = ok_pair(cu.cuMemAllocPitch(width, height, 4))
        self.held[address] = pitch * height
        self.of_context.add(address)
        return address

    @rule(target=linear, size=SIZES)
    def allocate_managed(self, size):
        flags = cu.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL.value
        address = int(ok(cu.cuMemAllocManaged(size, flags)))
        self.held[address] = size
        self.of_context.add(address)
        return address

    @rule(size=st.sampled_from([0, 1 << 40]))
    def fail_to_allocate(self, size):
        refused(cu.cuMemAlloc(size))
        refused(cu.cuMemCreate(size + 1, properties(), 0))
        refused(cu.cuMemAllocAsync(size, self.stream))
        refused(cu.cuArrayCreate(array_shape(1 << 30 if size else 0, 1)))

    @rule(address=consumes(linear), how=st.sampled_from(["now", "in a thread", "in order"]))
    def free(self, address, how):
        if address not in self.held:  # freed along with its context
            return refused(cu.cuMemFree(address))
        size = self.held.pop(address)
        if self.round_the_shim("linear"):
            return self.driver.call("cuMemFree_v2", address)
        if how == "in order":
            ok(cu.cuMemFreeAsync(address, self.stream))
            self.leaving += size
        elif how == "in a thread":
            worker = threading.Thread(target=lambda: ok(cu.cuMemFree(address)))
            worker.start()
            worker.join()
        else:
            ok(cu.cuMemFree(address))
        refused(cu.cuMemFree(address))
        return None

    # Arrays.

    @rule(target=arrays, width=st.sampled_from([1, 700]), height=FEW, form=st.integers(0, 2))
    def create_array(self, width, height, form):
        if form == 0:
            array = ok(cu.cuArrayCreate(array_shape(width, height)))
            size = width * height * 4
        else:
            shape = cu.CUDA_ARRAY3D_DESCRIPTOR()
            shape.Width, shape.Height, shape.Depth = width, height, 2
            shape.Format, shape.NumChannels = cu.CUarray_format.CU_AD_FORMAT_FLOAT, 2
            size = width * height * 2 * 8
            if form == 1:
                array = ok(cu.cuArray3DCreate(shape))
            else:
                array = ok(cu.cuMipmappedArrayCreate(shape, 2))
                size += max(width // 2, 1) * max(height // 2, 1) * 8
        self.held[int(array)] = size
        self.of_context.add(int(array))
        return array

    @rule(array=consumes(arrays))
    def destroy_array(self, array):
        mipmapped = isinstance(array, cu.CUmipmappedArray)
        destroy = cu.cuMipmappedArrayDestroy if mipmapped else cu.cuArrayDestroy
        if int(array) not in self.held:
            return None
        del self.held[int(array)]
        if self.round_the_shim("array"):
            name = "cuMipmappedArrayDestroy" if mipmapped else "cuArrayDestroy"
            return self.driver.call(name, int(array))
        ok(destroy(array))
        return refused(destroy(array))

    # Pools.

    @rule(target=pools, threshold=st.sampled_from([0, 4 * GRANULE]))
    def create_pool(self, threshold):
        props = cu.CUmemPoolProps()
        props.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        props.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        pool = Pool(ok(cu.cuMemPoolCreate(props)))
        which = cu.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
        ok(cu.cuMemPoolSetAttribute(pool.handle, which, cu.cuuint64_t(threshold)))
        self.live.append(pool)
        return pool

    @rule(target=pooled, size=SIZES, count=FEW)
    def allocate_async(self, size, count):
        if self.round_the_shim("pool"):
            found = [self.driver.allocate_async(size, self.stream) for _ in range(count)]
        else:
            found = [int(ok(cu.cuMemAllocAsync(size, self.stream))) for _ in range(count)]
        self.default.allocations |= set(found)
        return multiple(*[(address, self.default) for address in found])

    @rule(target=pooled, pool=pools, size=SIZES)
    def allocate_from_pool(self, pool, size):
        if pool not in self.live:
            return multiple()
        address = int(ok(cu.cuMemAllocFromPoolAsync(size, pool.handle, self.stream)))
        pool.allocations.add(address)
        return (address, pool)

    @rule(entry=consumes(pooled), in_order=st.booleans())
    def free_pooled(self, entry, in_order):
        address, pool = entry
        pool.allocations.remove(address)
        if in_order:
            ok(cu.cuMemFreeAsync(address, self.stream))
        else:
            ok(cu.cuMemFree(address))
        refused(cu.cuMemFree(address))

    @rule(pool=st.integers(0, 3), keep=st.sampled_from([0, GRANULE]))
    def trim(self, pool, keep):
        if pool < len(self.live):
            handle = self.live[pool].handle
            ok(cu.cuMemPoolTrimTo(handle, keep))

    @rule(pool=consumes(pools))
    def destroy_pool(self, pool):
        if self.plant:
            return
        held = pool.reserved()
        ok(cu.cuMemPoolDestroy(pool.handle))
        self.live.remove(pool)
        self.lingering.append((pool, held))

    # Physical memory.

    @rule(target=handles, granules=FEW)
    def create(self, granules):
        size = granules * GRANULE
        physical = Physical(ok(cu.cuMemCreate(size, properties(), 0)), size)
        self.physicals.append(physical)
        return physical

    @rule(target=mappings, physical=handles)
    def map(self, physical):
        if not physical.handles:
            return multiple()
        address = int(ok(cu.cuMemAddressReserve(physical.bytes, 0, 0, 0)))
        ok(cu.cuMemMap(address, physical.bytes, 0, physical.handle, 0))
        refused(cu.cuMemMap(address, physical.bytes, 0, physical.handle, 0))
        physical.mappings += 1
        self.mapped.append((address, physical))
        return (address, physical)

    @rule(target=handles, mapping=mappings, offset=st.sampled_from([0, 4096]))
    def retain(self, mapping, offset):
        address, physical = mapping
        physical.handle = ok(cu.cuMemRetainAllocationHandle(address + offset))
        physical.handles += 1
        return physical

    @rule(physical=consumes(handles))
    def release(self, physical):
        physical.handles -= 1
        if self.round_the_shim("physical"):
            return self.driver.call("cuMemRelease", int(physical.handle))
        ok(cu.cuMemRelease(physical.handle))
        if not physical.is_held:
            refused(cu.cuMemRelease(physical.handle))
        return None

    @rule(mapping=consumes(mappings))
    def unmap(self, mapping):
        address, physical = mapping
        physical.mappings -= 1
        self.mapped.remove(mapping)
        if self.round_the_shim("mapping"):
            self.driver.call("cuMemUnmap", address, physical.bytes)
        else:
            ok(cu.cuMemUnmap(address, physical.bytes))
        ok(cu.cuMemAddressFree(address, physical.bytes))

    # Graphs.

    @rule(sizes=st.lists(SIZES, min_size=1, max_size=2), captured=st.booleans())
    def run_a_graph_with_memory(self, sizes, captured):
        graph = self.captured(sizes) if captured else built(sizes)
        executable = ok(cu.cuGraphInstantiate(graph, 0))
        ok(cu.cuGraphLaunch(executable, self.stream))
        ok(cu.cuGraphLaunch(executable, self.stream))
        self.wait()
        ok(cu.cuGraphExecDestroy(executable))
        ok(cu.cuGraphDestroy(graph))
        which = cu.CUgraphMem_attribute.CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT
        self.graphs_hold = int(ok(cu.cuDeviceGetGraphMemAttribute(0, which)))
        assert self.graphs_hold > 0

    def captured(self, sizes):
        mode = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        ok(cu.cuStreamBeginCapture(self.stream, mode))
        for size in sizes:
            address = ok(cu.cuMemAllocAsync(size, self.stream))
            ok(cu.cuMemFreeAsync(address, self.stream))
        return ok(cu.cuStreamEndCapture(self.stream))

    @rule()
    def trim_graphs(self):
        self.graphs_hold = 0
        if self.round_the_shim("graph"):
            return self.driver.call("cuDeviceGraphMemTrim", 0)
        return ok(cu.cuDeviceGraphMemTrim(0))

    # Waits and contexts.

    @rule()
    def wait(self):
        ok(cu.cuCtxSynchronize())
        self.leaving = 0
        self.lingering = [(pool, held) for pool, held in self.lingering if pool.allocations]

    @precondition(lambda self: not self.plant)
    @rule()
    def replace_the_context(self):
        ok(cu.cuStreamSynchronize(self.stream))
        self.wait()
        ok(cu.cuStreamDestroy(self.stream))
        ok(cu.cuCtxDestroy(self.context))
        for key in self.of_context:
            self.held.pop(key, None)
        self.of_context.clear()
        self.context = ok(cu.cuCtxCreate(None, 0, 0))
        self.stream = ok(cu.cuStreamCreate(0))

    @invariant()
    def the_shim_says_what_the_model_and_the_device_say(self):
        shim = self.attached.snapshot().device_bytes
        free, total = ok_pair(cu.cuMemGetInfo())
        ledger = total - free - 2 * CONTEXT_BYTES
        lingering = sum(held for _, held in self.lingering)
        model = (
            sum(self.held.values())
            + sum(physical.bytes for physical in self.physicals if physical.is_held)
            + sum(pool.reserved() for pool in self.live)
            + self.graphs_hold
            + self.leaving
            + lingering
        )
        agrees = shim == model and shim - self.leaving - lingering <= ledger <= shim
        Accounts.differed = not agrees
        assert agrees, (shim, model, ledger, self.leaving, lingering)


def ok_pair(result):
    status, first, second = result
    assert status == SUCCESS, status
    return int(first), int(second)


def properties():
    prop = cu.CUmemAllocationProp()
    prop.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    prop.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    return prop


def array_shape(width, height):
    shape = cu.CUDA_ARRAY_DESCRIPTOR()
    shape.Width, shape.Height = width, height
    shape.Format, shape.NumChannels = cu.CUarray_format.CU_AD_FORMAT_FLOAT, 1
    return shape


def built(sizes):
    graph = ok(cu.cuGraphCreate(0))
    before: list[object] = []
    for size in sizes:
        params = cu.CUDA_MEM_ALLOC_NODE_PARAMS()
        params.poolProps.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        params.poolProps.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        params.bytesize = size
        node = ok_first(cu.cuGraphAddMemAllocNode(graph, before, len(before), params))
        before = [ok(cu.cuGraphAddMemFreeNode(graph, [node], 1, params.dptr))]
    return graph


def ok_first(result):
    assert result[0] == SUCCESS, result[0]
    return result[1]


def attach(folder: Path):
    """The daemon's side of this process's own channel."""
    daemon = FakeDaemon(folder)
    found: list[object] = []
    answering = threading.Thread(target=lambda: found.append(daemon.attach(clock=VIRTUAL)))
    answering.start()
    ok(cu.cuCtxSetCurrent(ok(cu.cuDevicePrimaryCtxRetain(0))))
    ok(cu.cuMemGetInfo())  # the first call with a context attaches
    answering.join(20)
    return found[0]


def main() -> int:
    folder, *plants = sys.argv[1:]
    ok(cu.cuInit(0))
    Accounts.attached = attach(Path(folder))
    Accounts.driver = Driver()
    Accounts.plant = plants[0] if plants else ""
    chosen = settings(
        max_examples=400 if plants else 150,  # the first difference ends the run
        stateful_step_count=30,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],  # leaks persist, so an example cannot be repeated
        suppress_health_check=list(HealthCheck),
    )
    try:
        run_state_machine_as_test(Accounts, settings=chosen)
    except Exception:
        if plants and Accounts.differed:
            return 3
        raise
    return 0


if __name__ == "__main__":
    sys.exit(main())
