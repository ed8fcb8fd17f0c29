"""Generator operations that give streams work: kernels, copies, memsets and others."""

from __future__ import annotations

from proof_model import BUFFER_BYTES, WORDS, Buffer, Lane, Model
from proof_program import DEVICE, HOST, box_2d, box_3d, launch_config, parameters

SIZES = (4, 64, 256, 1000, 4096)
KERNELS = ("mix", "slow_mix", "mix", "fold")


def some_lane(m: Model) -> Lane | None:
    return m.choices.pick(m.lanes) if m.lanes else None


def some_buffer(m: Model, lane: Lane) -> Buffer | None:
    return m.choices.pick(lane.buffers) if lane.buffers else None


def settle(m: Model, lane: Lane, thread: int) -> bool:
    """Wait if necessary before a call without a stream; tell whether the call relies on that wait.

    Such a call itself waits for streams that block with the legacy stream, but not for others.
    """
    if not lane.is_blocking:
        m.order(thread, m.flavour(lane, "cuStreamSynchronize"), lane.stream)
    return not lane.is_blocking


def legacy_symbol(lane: Lane, symbol: str) -> str:
    """Return the symbol of a call without a stream, for the legacy stream or the thread's own."""
    return symbol + "_ptds" if lane.suffix else symbol


def launch(m: Model) -> None:
    lane = some_lane(m)
    if lane is None or (buffer := some_buffer(m, lane)) is None:
        return
    c = m.choices
    kernel = c.pick(KERNELS)
    blocks, threads = c.pick((1, 4, 9)), c.pick((32, 128))
    function = f"f{lane.context[1:]}_{kernel}!"
    if kernel == "fold":
        source = c.pick(lane.buffers)
        values = parameters(f"{buffer.name}!", f"{source.name}!", WORDS)
        m.touch(lane, source)
    else:
        values = parameters(f"{buffer.name}!", c.take(90) * 2 + 3, c.take(200), WORDS)
    m.touch(lane, buffer)
    launch_by(m, lane, function, (blocks, threads), values)


def launch_by(
    m: Model, lane: Lane, function: str, shape: tuple[int, int], values: str, **more
) -> None:
    """Launch by one of the three launch calls."""
    blocks, threads = shape
    size = (blocks, 1, 1, threads, 1, 1, 0, lane.stream)
    match m.choices.take(4):
        case 0 | 1:
            symbol = m.flavour(lane, "cuLaunchKernel")
            m.work(lane, symbol, function, *size, values, 0, **more)
        case 2:
            config = launch_config(blocks, threads, lane.stream)
            symbol = m.flavour(lane, "cuLaunchKernelEx")
            m.work(lane, symbol, config, function, values, 0, **more)
        case _:
            symbol = m.flavour(lane, "cuLaunchCooperativeKernel")
            m.work(lane, symbol, function, *size, values, **more)


def copy_in(m: Model) -> None:
    _host_copy(m, to_device=True)


def copy_out(m: Model) -> None:
    _host_copy(m, to_device=False)


def _host_copy(m: Model, *, to_device: bool) -> None:
    lane = some_lane(m)
    if lane is None or not lane.hosts or (buffer := some_buffer(m, lane)) is None:
        return
    c, size = m.choices, m.choices.pick(SIZES)
    host, device = f"H{lane.hosts[0]}+{c.take(8) * 64}", f"{buffer.name}!"
    m.touch(lane, buffer)
    to, source = (device, host) if to_device else (host, device)
    way = "HtoD" if to_device else "DtoH"
    kinds = (HOST, DEVICE) if to_device else (DEVICE, HOST)
    match c.take(7):
        case 0 | 1:
            m.work(lane, m.flavour(lane, f"cuMemcpy{way}Async_v2"), to, source, size, lane.stream)
        case 2 if buffer.is_reachable:
            do_now(m, lane, f"cuMemcpy{way}_v2", to, source, size)
        case 3:
            m.work(lane, m.flavour(lane, "cuMemcpyAsync"), to, source, size, lane.stream)
        case 4:
            box = box_2d(to, source, 60, size // 64 + 1, 64, kinds)
            m.work(lane, m.flavour(lane, "cuMemcpy2DAsync_v2"), box, lane.stream)
        case 5:
            box = box_3d(to, source, 60, size // 64 + 1, 64, kinds)
            m.work(lane, m.flavour(lane, "cuMemcpy3DAsync_v2"), box, lane.stream)
        case _ if buffer.is_reachable:
            do_now(m, lane, "cuMemcpy2D_v2", box_2d(to, source, 60, size // 64 + 1, 64, kinds))
        case _:
            pass


def do_now(m: Model, lane: Lane, symbol: str, *arguments: object) -> None:
    """Make a call without a stream on the lane's memory."""
    thread = m.thread_for(lane)
    relies = settle(m, lane, thread)
    m.emit(
        thread,
        legacy_symbol(lane, symbol),
        *arguments,
        stream="2" if lane.suffix else "1",
        is_work=not m.captures,
        relies_on_order=relies,
    )


def copy_within(m: Model) -> None:
    lane = some_lane(m)
    if lane is None or len(lane.buffers) < 2:
        return
    c, size = m.choices, m.choices.pick(SIZES)
    first = c.take(len(lane.buffers))
    to, source = lane.buffers[first], lane.buffers[first - 1]
    m.touch(lane, to, source)
    to_name, source_name, context = f"{to.name}!", f"{source.name}!", lane.context
    match c.take(4):
        case 0 | 1:
            symbol = m.flavour(lane, "cuMemcpyDtoDAsync_v2")
            m.work(lane, symbol, to_name, source_name, size, lane.stream)
        case 2:
            symbol = m.flavour(lane, "cuMemcpyPeerAsync")
            peers = (to_name, context, source_name, context)
            m.work(lane, symbol, *peers, size, lane.stream)
        case _:
            box = box_2d(to_name, source_name, 60, size // 64 + 1, 64, (DEVICE, DEVICE))
            m.work(lane, m.flavour(lane, "cuMemcpy2DAsync_v2"), box, lane.stream)


def memset(m: Model) -> None:
    lane = some_lane(m)
    if lane is None or (buffer := some_buffer(m, lane)) is None:
        return
    c = m.choices
    bits = c.pick((8, 16, 32))
    count, value, to = c.pick(SIZES) * 8 // bits // 4 + 1, c.take(250), f"{buffer.name}!"
    m.touch(lane, buffer)
    match c.take(4):
        case 0 | 1:
            symbol = m.flavour(lane, f"cuMemsetD{bits}Async")
            m.work(lane, symbol, to, value, count, lane.stream)
        case 2:
            symbol = m.flavour(lane, f"cuMemsetD2D{bits}Async")
            m.work(lane, symbol, to, 256, value, 8, count % 14 + 1, lane.stream)
        case _ if buffer.is_reachable and (lane.is_blocking or lane.is_default):
            # Without a stream it does not wait, so only the legacy stream orders it.
            if not lane.is_default or lane.stream == "0":
                do_now(m, lane, f"cuMemsetD{bits}_v2", to, value, count)
        case _:
            pass


def host_function(m: Model) -> None:
    lane = some_lane(m)
    if lane is None:
        return
    lane.notes += 1
    number = lane.number * 1000 + lane.notes
    m.work(lane, m.flavour(lane, "cuLaunchHostFunc"), lane.stream, "@note", number)


def write_value(m: Model) -> None:
    lane = some_lane(m)
    if lane is None or (buffer := some_buffer(m, lane)) is None:
        return
    c = m.choices
    bits, at, value = c.pick((32, 64)), c.take(100) * 8, c.take(200)
    m.touch(lane, buffer)
    where = f"{buffer.name}!+{at}"
    m.work(lane, m.flavour(lane, f"cuStreamWriteValue{bits}_v2"), lane.stream, where, value, 0)
    if c.take(2):
        m.work(lane, m.flavour(lane, f"cuStreamWaitValue{bits}_v2"), lane.stream, where, value, 1)


def wait_for_value_of_another_stream(m: Model) -> None:
    """Let one stream wait for a value that another writes, with the wait submitted first.

    Only what is submitted after the wait lets it end, and the word stays until the wait has seen
    it.
    """
    created = [lane for lane in m.lanes if not lane.is_default and lane.capture is None]
    if m.captures or len(created) < 2:
        return
    first = m.choices.take(len(created))
    waits, writes = created[first], created[first - 1]
    if waits.context != writes.context or (buffer := some_buffer(m, writes)) is None:
        return
    if buffer.in_graphs:
        return
    value = 1000 + m.choices.take(200)
    where = f"{buffer.name}!+{BUFFER_BYTES - 8}"
    thread = m.thread_for(waits)
    event, how = m.new("e"), {"thread": thread, "verb": "order"}
    m.emit(thread, "cuEventCreate", f"&{event}", 2)
    m.work(waits, "cuStreamWaitValue32_v2", waits.stream, where, value, 1, **how)
    how["relies_on_order"] = True
    m.work(writes, "cuStreamWriteValue32_v2", writes.stream, where, value, 0, **how)
    m.work(waits, "cuEventRecord", event, waits.stream, **how)
    m.work(writes, "cuStreamWaitEvent", writes.stream, event, 0, **how)
    m.name_anew(buffer)
