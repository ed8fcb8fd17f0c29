"""Generator operations on memory: linear, pooled and virtual."""

from __future__ import annotations

from proof_data import some_lane
from proof_model import BUFFER_BYTES, THREADS, WORDS, Array, Buffer, Lane, Model
from proof_program import access, allocation_properties, pool_properties

CHUNK = 2 << 20  # of virtual memory


def allocate(m: Model) -> None:
    lane = some_lane(m)
    if lane is None or len(lane.buffers) > 3:
        return
    how = m.choices.pick(("alloc", "alloc", "async", "managed", "pitch", "pool", "vmm"))
    allocate_as(m, lane, "alloc" if m.captures else how)


def allocate_as(m: Model, lane: Lane, how: str) -> Buffer:
    c, thread = m.choices, m.thread_for(lane)
    name = m.new("d")
    device = m.devices[lane.context]
    out = f"&{name}"
    pools = [None, *(pool for pool, of in m.pools.items() if of == device)]
    match how:
        case "async":
            symbol = m.flavour(lane, "cuMemAllocAsync")
            m.emit(thread, symbol, out, BUFFER_BYTES, lane.stream)
        case "pool" if (pool := c.pick(pools)) is not None:
            symbol = m.flavour(lane, "cuMemAllocFromPoolAsync")
            m.emit(thread, symbol, out, BUFFER_BYTES, pool, lane.stream)
        case "managed":
            m.emit(thread, "cuMemAllocManaged", out, BUFFER_BYTES, 1)
        case "pitch":
            m.emit(thread, "cuMemAllocPitch_v2", out, "~8", 512, 8, 4)
        case "vmm":
            _map_chunk(m, name, thread, device)
        case _:
            how = "alloc"
            m.emit(thread, "cuMemAlloc_v2", out, BUFFER_BYTES)
    reachable = how not in ("async", "pool")
    buffer = Buffer(name=name, source=name, how=how, is_reachable=reachable)
    lane.buffers.append(buffer)
    # Memory has no defined contents until it is written.
    m.work(lane, m.flavour(lane, "cuMemsetD32Async"), f"{name}!", 7, WORDS, lane.stream)
    m.touch(lane, buffer)
    return buffer


def _map_chunk(m: Model, name: str, thread: int, device: int) -> None:
    m.emit(thread, "cuMemAddressReserve", f"&{name}", CHUNK, 0, 0, 0)
    m.emit(thread, "cuMemCreate", f"&v{name}", CHUNK, allocation_properties(device), 0)
    m.emit(thread, "cuMemMap", f"{name}!", CHUNK, 0, f"v{name}", 0)
    m.emit(thread, "cuMemSetAccess", f"{name}!", CHUNK, access(device), 1)


def free(m: Model) -> None:
    lane = some_lane(m)
    if lane is None or lane.capture or not lane.buffers:
        return
    buffer = lane.buffers[m.choices.take(len(lane.buffers))]
    if buffer.in_graphs or m.captures:
        return
    thread = m.thread_for(lane)
    in_order = buffer.how not in ("managed", "vmm", "pitch") and m.choices.take(2) == 1
    lane.buffers.remove(buffer)
    if in_order and buffer.how in ("async", "pool"):
        m.emit(thread, m.flavour(lane, "cuMemFreeAsync"), f"{buffer.name}!", lane.stream)
        return
    m.emit(thread, m.flavour(lane, "cuStreamSynchronize"), lane.stream)
    release(m, buffer, thread)
    if m.choices.seldom() and not m.is_tame:  # free it twice
        m.emit(thread, "cuMemFree_v2", f"{buffer.name}!")


def release(m: Model, buffer: Buffer, thread: int) -> None:
    """Release a buffer; only the call that frees plain memory waits for work that uses it."""
    name = f"{buffer.name}!"
    waits = buffer.how not in ("vmm", "async", "pool")
    if not waits:
        m.order(thread, "cuCtxSynchronize")
    if buffer.how == "vmm":
        m.emit(thread, "cuMemUnmap", name, CHUNK, relies_on_order=True)
        m.emit(thread, "cuMemRelease", f"v{buffer.source}!", relies_on_order=True)
        m.emit(thread, "cuMemAddressFree", name, CHUNK, relies_on_order=True)
    else:
        m.emit(thread, "cuMemFree_v2", name, relies_on_order=not waits)


def free_all(m: Model, lane: Lane, thread: int) -> None:
    for buffer in lane.buffers:
        release(m, buffer, thread)
    lane.buffers.clear()
    for some in list(lane.arrays):
        release_array(m, lane, some, thread)


def release_array(m: Model, lane: Lane, some: Array, thread: int) -> None:
    m.order(thread, "cuCtxSynchronize")
    symbol = "cuArrayDestroy" if some.whole == some.name else "cuMipmappedArrayDestroy"
    m.emit(thread, symbol, f"{some.whole}!", relies_on_order=True)
    lane.arrays.remove(some)


def create_pool(m: Model) -> None:
    if len(m.pools) > 1 or m.captures:
        return
    name, thread = m.new("p"), m.choices.take(THREADS)
    device = m.choices.take(m.program.devices)
    m.emit(thread, "cuMemPoolCreate", f"&{name}", pool_properties(device))
    m.emit(thread, "cuMemPoolSetAttribute", name, 4, "#8=0" if m.choices.take(2) else "#8=99999999")
    m.emit(thread, "cuMemPoolTrimTo", name, 0)
    m.pools[name] = device
