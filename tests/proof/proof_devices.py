"""Generator operations on a second device, and between contexts."""

from __future__ import annotations

from proof_data import SIZES, launch_by, some_buffer
from proof_model import THREADS, WORDS, Buffer, Lane, Model
from proof_program import parameters
from proof_things import settle_in

SECOND = 1  # the device's number


def use_second_device(m: Model) -> None:
    """Make a context there: its primary one, or one of the program's own."""
    if m.program.devices > 1 or m.captures or len(m.contexts) > 2:
        return
    m.program.devices = 2
    context, thread = m.new("c"), m.choices.take(THREADS)
    if m.choices.take(2):
        m.emit(thread, "cuCtxCreate_v2", f"&{context}", 0, SECOND)
    else:
        m.emit(thread, "cuDevicePrimaryCtxRetain", f"&{context}", SECOND)
        m.emit(thread, "cuCtxSetCurrent", context)
        m.primary = context
    m.stacks[thread][-1:] = [context]
    m.devices[context] = SECOND
    settle_in(m, context, thread)


def copy_between(m: Model) -> None:
    """Copy what a stream of another context has left in its memory, ordered by events."""
    pairs = [
        (giver, taker)
        for giver in m.lanes
        for taker in m.lanes
        if giver.context != taker.context and giver.buffers and taker.buffers
    ]
    if m.captures or not pairs:
        return
    giver, taker = m.choices.pick(pairs)
    source, to = some_buffer(m, giver), some_buffer(m, taker)
    if source is None or to is None or source.in_graphs:
        return
    before, after = _event(m, giver), _event(m, taker)
    m.work(giver, m.flavour(giver, "cuEventRecord"), before, giver.stream, verb="order")
    rely = {"verb": "order", "relies_on_order": True}
    m.work(taker, m.flavour(taker, "cuStreamWaitEvent"), taker.stream, before, 0, **rely)
    _use(m, taker, to, (giver, source))
    m.work(taker, m.flavour(taker, "cuEventRecord"), after, taker.stream, **rely)
    m.work(giver, m.flavour(giver, "cuStreamWaitEvent"), giver.stream, after, 0, **rely)
    m.name_anew(source)


def _event(m: Model, lane: Lane) -> str:
    event = m.new("e")
    m.emit(m.thread_for(lane), "cuEventCreate", f"&{event}", 2)
    return event


def _use(m: Model, lane: Lane, to: Buffer, other: tuple[Lane, Buffer]) -> None:
    """Use it by a copy, or by a kernel that accesses peer memory."""
    giver, source = other
    names = (f"{to.name}!", f"{source.name}!")
    if m.choices.take(3) < 2 or source.how != "alloc":
        peers = (names[0], lane.context, names[1], giver.context, m.choices.pick(SIZES))
        symbol = m.flavour(lane, "cuMemcpyPeerAsync")
        m.work(lane, symbol, *peers, lane.stream, verb="order", relies_on_order=True)
        return
    m.emit(m.thread_for(lane), "cuCtxEnablePeerAccess", giver.context, 0)
    fold, values = f"f{lane.context[1:]}_fold!", parameters(*names, WORDS)
    launch_by(m, lane, fold, (4, 32), values, verb="order", relies_on_order=True)
