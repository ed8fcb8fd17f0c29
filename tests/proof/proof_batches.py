"""Generator operations on batches of copies and on managed memory."""

from __future__ import annotations

from proof_data import some_buffer, some_lane
from proof_memory import allocate_as
from proof_model import BUFFER_BYTES, WORDS, Lane, Model
from proof_program import array, boxes, copy_attributes, location

SLICE = 1024  # one for each copy of a batch, because they are unordered among themselves
IN_STREAM, AT_ONCE = 1, 2  # CUmemcpySrcAccessOrder
TO_HOST, TO_DEVICE = location(2, 0), location(1, 0)


def copy_batch(m: Model) -> None:
    lane = some_lane(m)
    if lane is None or _refuses_batches(m, lane):
        return
    pairs = [_ends(m, lane, i * SLICE) for i in range(m.choices.take(3) + 1)]
    sizes = [str(m.choices.pick((4, 64, 1000))) for _ in pairs]
    order = m.choices.pick((IN_STREAM, IN_STREAM, AT_ONCE))
    settings = (copy_attributes(order), array(["0"]), 1)
    to, source = (array([pair[i] for pair in pairs]) for i in range(2))
    what = (to, source, array(sizes), len(pairs), *settings)
    thread = m.thread_for(lane)
    if order == AT_ONCE:  # it may run before what the stream still has to do
        m.order(thread, m.flavour(lane, "cuStreamSynchronize"), lane.stream)
    symbol, failed = m.choices.pick(
        (("cuMemcpyBatchAsync_v2", ()), ("cuMemcpyBatchAsync", ("#8",)))
    )
    words = (m.flavour(lane, symbol), *what, *failed, lane.stream)
    m.work(lane, *words, thread=thread, relies_on_order=order == AT_ONCE)


def copy_boxes(m: Model) -> None:
    lane = some_lane(m)
    if lane is None or _refuses_batches(m, lane):
        return
    pairs = [_ends(m, lane, i * SLICE) for i in range(m.choices.take(3) + 1)]
    rows = m.choices.take(8) + 1
    what = boxes(pairs, 60, rows, 64)
    symbol = m.choices.pick(("cuMemcpy3DBatchAsync_v2", "cuMemcpy3DBatchAsync"))
    failed = () if symbol.endswith("_v2") else ("#8",)
    m.work(lane, m.flavour(lane, symbol), len(pairs), what, *failed, 0, lane.stream)


def _refuses_batches(m: Model, lane: Lane) -> bool:
    """Tell whether to skip: no memory, or the lane captures or is legacy, which is tried seldom."""
    if not lane.hosts or not lane.buffers:
        return True
    is_legacy = lane.stream == "1" or (lane.stream == "0" and not lane.suffix)
    return (lane.capture is not None or is_legacy) and not m.choices.seldom()


def _ends(m: Model, lane: Lane, at: int) -> tuple[str, str]:
    """Return target and source, each at the same place of its memory."""
    buffer, host = some_buffer(m, lane), f"H{lane.hosts[0]}+{at}"
    assert buffer
    other = lane.buffers[lane.buffers.index(buffer) - 1]
    m.touch(lane, buffer, other)
    device = f"{buffer.name}!+{at}"
    if other is not buffer and m.choices.take(3) == 2:
        return device, f"{other.name}!+{at}"
    return (device, host) if m.choices.take(2) else (host, device)


def prefetch(m: Model) -> None:
    """Move managed memory to the device or the host, or discard its contents and write it anew."""
    lane = some_lane(m)
    if lane is None or lane.capture:
        return
    managed = [buffer for buffer in lane.buffers if buffer.how == "managed"]
    if not managed:
        if m.captures or len(lane.buffers) > 3:
            return
        managed = [allocate_as(m, lane, "managed")]
    c, name = m.choices, f"{m.choices.pick(managed).name}!"
    place = c.pick((TO_DEVICE, TO_HOST))
    lists = (array([name]), array([str(BUFFER_BYTES)]), 1)
    places = (array([str(place)]), array(["0"]), 1)
    match c.take(6):
        case 0 | 1:
            device = c.pick((0, -1))
            symbol = m.flavour(lane, "cuMemPrefetchAsync")
            m.work(lane, symbol, name, c.pick((BUFFER_BYTES, 64)), device, lane.stream)
        case 2:
            symbol = m.flavour(lane, "cuMemPrefetchAsync_v2")
            m.work(lane, symbol, name, BUFFER_BYTES, place, 0, lane.stream)
        case 3:
            symbol = m.flavour(lane, "cuMemPrefetchBatchAsync")
            m.work(lane, symbol, *lists, *places, 0, lane.stream)
        case 4:
            m.emit(m.thread_for(lane), "cuMemAdvise", name, BUFFER_BYTES, c.take(6) + 1, 0)
        case _:
            symbol = m.flavour(lane, "cuMemDiscardBatchAsync")
            m.work(lane, symbol, *lists, 0, lane.stream)
            fill = m.flavour(lane, "cuMemsetD32Async")
            m.work(lane, fill, name, 9, WORDS, lane.stream)
