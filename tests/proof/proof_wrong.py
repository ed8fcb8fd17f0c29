"""Calls that a driver refuses, and a kernel that ends its context."""

from __future__ import annotations

from proof_data import launch_by, some_lane
from proof_memory import CHUNK
from proof_model import Model
from proof_program import allocation_properties, parameters, struct


def be_wrong(m: Model) -> None:
    """Make a call that a driver refuses."""
    lane = some_lane(m)
    if lane is None:
        return
    c, thread = m.choices, m.thread_for(lane)
    d = f"{lane.buffers[0].name}!" if lane.buffers else "0"
    s = lane.stream
    f = f"f{lane.context[1:]}_mix!"
    wrong = (
        ("cuMemAlloc_v2", 0, 64),
        ("cuMemAlloc_v2", "&z0", 0),
        ("cuMemAlloc_v2", "&z0", 1 << 50),
        ("cuMemFree_v2", 0x7),
        ("cuStreamCreate", 0, 0),
        ("cuStreamCreate", "&z0", 77),
        ("cuStreamDestroy_v2", 0),
        ("cuEventCreate", 0, 0),
        ("cuEventCreate", "&z0", 0x7000),
        ("cuEventRecord", 0, s),
        ("cuEventDestroy_v2", 0),
        ("cuMemcpyHtoDAsync_v2", 0x7, "H0", 64, s),
        ("cuMemcpyHtoDAsync_v2", d, "H0", 1 << 40, s),
        ("cuMemcpyDtoH_v2", 0, 0x7, 64),
        ("cuMemcpyDtoDAsync_v2", d, 0x7, 64, s),
        ("cuMemsetD32Async", f"{d}+1", 1, 8, s),
        ("cuMemsetD8_v2", 0x7, 1, 8),
        ("cuLaunchKernel", f, 0, 1, 1, 32, 1, 1, 0, s, parameters(d, 1, 1, 1), 0),
        ("cuLaunchKernel", f, 1, 1, 1, 4096, 1, 1, 0, s, parameters(d, 1, 1, 1), 0),
        ("cuLaunchKernel", 0, 1, 1, 1, 32, 1, 1, 0, s, 0, 0),
        ("cuLaunchKernelEx", 0, f, 0, 0),
        ("cuLaunchHostFunc", s, 0, 0),
        ("cuGraphLaunch", 0, s),
        ("cuGraphInstantiateWithFlags", "&z0", 0, 0),
        ("cuStreamEndCapture", s, "&z0"),
        ("cuStreamBeginCapture_v2", 0, 0),
        ("cuStreamBeginCapture_v2", s, 9),
        ("cuStreamWaitEvent", s, 0, 0),
        ("cuStreamWaitValue32_v2", s, 0x7, 1, 0),
        ("cuMemAllocAsync", "&z0", 0, s),
        ("cuMemAllocAsync", 0, 64, s),
        ("cuMemFreeAsync", 0x7, s),
        ("cuMemMap", 0, CHUNK, 0, 0, 0),
        ("cuMemCreate", "&z0", 1, allocation_properties(0), 0),
        ("cuMemAddressFree", 0x7, CHUNK),
        ("cuMemcpy2D_v2", struct(128)),
        ("cuMemcpy2D_v2", 0),
        ("cuMemcpy3DAsync_v2", 0, s),
        ("cuCtxSetCurrent", 0x7),
        ("cuModuleGetFunction", "&z0", f"m{lane.context[1:]}", '"nothing'),
        ("cuModuleLoadData", "&z0", "H0"),
        ("cuGetProcAddress_v2", '"cuNothing', "&z0", 12000, 0, "#4"),
        ("cuDevicePrimaryCtxRetain", "&z0", 77),
    )
    symbol, *arguments = c.pick(wrong)
    if lane.capture is None or c.seldom():
        stream = m.stream_key(lane, symbol) if s in arguments else "1"
        m.emit(thread, symbol, *arguments, stream=stream)


def copy_wrongly(m: Model) -> None:
    """Make a copy that a driver refuses, in a stream that otherwise works."""
    lanes = [lane for lane in m.lanes if lane.buffers and not lane.capture]
    if not lanes:
        return
    lane = m.choices.pick(lanes)
    thread, d, s = m.thread_for(lane), f"{lane.buffers[0].name}!", lane.stream
    copies = (
        ("cuMemcpyHtoDAsync_v2", "0x7", "H0", 64, s),
        ("cuMemcpyHtoDAsync_v2", d, "H0", 1 << 40, s),
        ("cuMemcpyDtoDAsync_v2", d, "0x7", 64, s),
        ("cuMemcpyBatchAsync_v2", 0, 0, 0, 1, 0, 0, 0, s),
        ("cuMemcpy3DBatchAsync_v2", 1, 0, 0, s),
        ("cuMemPrefetchAsync", d, 1 << 40, 0, s),
    )
    symbol, *arguments = m.choices.pick(copies)
    m.emit(thread, symbol, *arguments, stream=m.stream_key(lane, symbol))


def crash(m: Model) -> None:
    """Launch a kernel that accesses an invalid address; the context is lost."""
    if m.captures or (lane := some_lane(m)) is None or m.choices.take(4):
        return
    thread = m.thread_for(lane)
    m.order(thread, "cuCtxSynchronize")  # it is undefined how far other work gets
    poke = f"f{lane.context[1:]}_poke!"
    launch_by(m, lane, poke, (1, 1), parameters("0x7"), relies_on_order=True)
    m.emit(thread, "cuCtxSynchronize")
    m.emit(thread, "cuCtxSynchronize")
