"""Generator operations in which two processes use the same memory and events."""

from __future__ import annotations

from proof_data import SIZES, some_buffer, some_lane
from proof_model import PEER, Buffer, Lane, Model

MEMORY, EVENT = "$0", "$1"  # where the handles are
INTERPROCESS = 6  # CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS
LAZY_PEER_ACCESS = 1  # the only flag there is


def share_memory(m: Model) -> None:
    """Let the second process open, use and close a buffer, while this one waits."""
    lane = some_lane(m)
    if lane is None or m.captures or m.devices[lane.context] != 0:
        return
    buffer = some_buffer(m, lane)
    if buffer is None or buffer.how != "alloc" or buffer.in_graphs:
        return
    _begin(m)
    if m.choices.take(2):
        _wait_by_event(m, lane)
    else:
        m.order(m.thread_for(lane), m.flavour(lane, "cuStreamSynchronize"), lane.stream)
    _use(m, lane, buffer)
    m.name_anew(buffer)


def _begin(m: Model) -> None:
    if m.has_peer:
        return
    m.has_peer = True
    m.emit(PEER, "cuInit", 0)
    m.emit(PEER, "cuDevicePrimaryCtxRetain", "&c0", 0)
    m.emit(PEER, "cuCtxSetCurrent", "c0")
    m.emit(PEER, "cuStreamCreate", "&s0", 1)


def _wait_by_event(m: Model, lane: Lane) -> None:
    """Let the other process's stream wait for this one's."""
    event, theirs, thread = m.new("e"), m.new("e"), m.thread_for(lane)
    m.emit(thread, "cuEventCreate", f"&{event}", INTERPROCESS)
    m.order(thread, "cuIpcGetEventHandle", EVENT, event)
    rely = {"verb": "order", "relies_on_order": True}
    m.emit(PEER, "cuIpcOpenEventHandle", f"&{theirs}", EVENT, **rely)
    m.work(lane, m.flavour(lane, "cuEventRecord"), event, lane.stream, thread=thread, **rely)
    m.emit(PEER, "cuStreamWaitEvent", "s0", theirs, 0, **rely)


def _use(m: Model, lane: Lane, buffer: Buffer) -> None:
    c, theirs, host = m.choices, m.new("d"), f"H{m.choices.take(4)}"
    rely = {"verb": "order", "relies_on_order": True}
    m.emit(m.thread_for(lane), "cuIpcGetMemHandle", MEMORY, f"{buffer.name}!", **rely)
    m.emit(PEER, "cuIpcOpenMemHandle_v2", f"&{theirs}", MEMORY, LAZY_PEER_ACCESS, **rely)
    for _ in range(c.take(3) + 1):
        uses = (
            ("cuMemsetD8Async", f"{theirs}!", c.take(250), c.pick(SIZES), "s0"),
            ("cuMemcpyHtoDAsync_v2", f"{theirs}!", host, c.pick(SIZES), "s0"),
            ("cuMemcpyDtoHAsync_v2", host, f"{theirs}!", c.pick(SIZES), "s0"),
        )
        m.emit(PEER, *c.pick(uses), relies_on_order=True)
    m.emit(PEER, "cuStreamSynchronize", "s0", **rely)
    m.emit(PEER, host[1:], verb="look", relies_on_order=True)
    m.emit(PEER, "cuIpcCloseMemHandle", f"{theirs}!", relies_on_order=True)
