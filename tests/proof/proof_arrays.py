"""Generator operations on device arrays, which only copies can access."""

from __future__ import annotations

from proof_data import do_now, some_buffer, some_lane
from proof_memory import release_array
from proof_model import Array, Lane, Model
from proof_program import ARRAY, DEVICE, HOST, array_shape, array_shape_3d, box_2d, boxes

WIDTH, HEIGHT = 512, 4  # in elements of one byte
SIZES = (4, 64, 256)


def create_array(m: Model) -> None:
    lane = some_lane(m)
    if lane is None or m.captures or len(lane.arrays) > 1:
        return
    thread, name, whole = m.thread_for(lane), m.new("a"), ""
    height = m.choices.pick((0, HEIGHT))
    match m.choices.take(4):
        case 0 | 1:
            m.emit(thread, "cuArrayCreate_v2", f"&{name}", array_shape(WIDTH, height))
        case 2:
            m.emit(thread, "cuArray3DCreate_v2", f"&{name}", array_shape_3d(WIDTH, height))
        case _:
            whole, shape = m.new("l"), array_shape_3d(WIDTH, height)
            m.emit(thread, "cuMipmappedArrayCreate", f"&{whole}", shape, 2)
            m.emit(thread, "cuMipmappedArrayGetLevel", f"&{name}", f"{whole}!", 0)
    lane.arrays.append(Array(name=name, height=height, whole=whole or name))
    # An array has no defined contents until it is written.
    if lane.hosts:
        rows = height or 1
        box = box_2d(f"{name}!", f"H{lane.hosts[0]}", WIDTH, rows, WIDTH, (HOST, ARRAY))
        m.work(lane, m.flavour(lane, "cuMemcpy2DAsync_v2"), box, lane.stream, thread=thread)


def copy_array(m: Model) -> None:
    """Copy between an array and the host or device memory, at once or in the stream."""
    lanes = [lane for lane in m.lanes if lane.arrays and lane.hosts and not lane.capture]
    if not lanes:
        create_array(m)
        return
    lane = m.choices.pick(lanes)
    c, size = m.choices, m.choices.pick(SIZES)
    some = c.pick(lane.arrays)
    name = f"{some.name}!"
    host, at = f"H{lane.hosts[0]}+{c.take(8) * 64}", c.take(3) * 64
    match c.take(8):
        case 0:
            symbol = m.flavour(lane, "cuMemcpyHtoAAsync_v2")
            m.work(lane, symbol, name, at, host, size, lane.stream)
        case 1:
            symbol = m.flavour(lane, "cuMemcpyAtoHAsync_v2")
            m.work(lane, symbol, host, name, at, size, lane.stream)
        case 2:
            do_now(m, lane, "cuMemcpyHtoA_v2", name, at, host, size)
        case 3:
            do_now(m, lane, "cuMemcpyAtoH_v2", host, name, at, size)
        case 4:
            other = f"{lane.arrays[0].name}!"
            if other != name and lane.is_blocking:
                do_now(m, lane, "cuMemcpyAtoA_v2", other, at, name, at, size)
        case _:
            _copy_memory(m, lane, some, at)


def _copy_memory(m: Model, lane: Lane, some: Array, at: int) -> None:
    """Copy between an array and device memory."""
    if (buffer := some_buffer(m, lane)) is None:
        return
    c, memory, name, rows = m.choices, f"{buffer.name}!", f"{some.name}!", some.height or 1
    to_array = c.take(2) == 1
    to, source = (name, memory) if to_array else (memory, name)
    kinds = (DEVICE, ARRAY) if to_array else (ARRAY, DEVICE)
    match c.take(3):
        case 0:
            box = box_2d(to, source, 60, rows, WIDTH, kinds)
            m.work(lane, m.flavour(lane, "cuMemcpy2DAsync_v2"), box, lane.stream)
        case 1 if buffer.is_reachable and lane.is_blocking:
            # A copy inside the device does not wait, so only the legacy stream orders it.
            if to_array:
                do_now(m, lane, "cuMemcpyDtoA_v2", name, at, memory, 64)
            else:
                do_now(m, lane, "cuMemcpyAtoD_v2", memory, name, at, 64)
        case _:
            box = boxes([(to, source)], 60, rows, WIDTH, kinds)
            symbol = m.flavour(lane, "cuMemcpy3DBatchAsync_v2")
            m.work(lane, symbol, 1, box, 0, lane.stream)


def destroy_array(m: Model) -> None:
    lanes = [lane for lane in m.lanes if lane.arrays and not lane.capture]
    if not lanes or m.captures:
        return
    lane = m.choices.pick(lanes)
    release_array(m, lane, m.choices.pick(lane.arrays), m.thread_for(lane))
