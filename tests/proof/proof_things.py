"""Generator operations on contexts, streams, events and threads; beginnings and ends."""

from __future__ import annotations

from proof_data import KERNELS, some_buffer, some_lane
from proof_graphs import end_capture
from proof_memory import allocate, free_all
from proof_model import THREADS, Lane, Model

# (stream, suffix of the calls); per-thread streams have more weight.
DEFAULT_STREAMS = (("0", ""), ("0", "_ptsz"), ("2", ""), ("0", "_ptsz"), ("1", ""), ("2", ""))


def begin(m: Model) -> None:
    """Begin as nearly every program does: one context, one stream, one buffer."""
    m.emit(0, "cuInit", 0)
    m.emit(0, "cuDevicePrimaryCtxRetain", "&c0", 0)
    m.new("c")
    m.emit(0, "cuCtxSetCurrent", "c0")
    m.stacks[0] = ["c0"]
    m.devices["c0"] = 0
    settle_in(m, "c0", 0)
    create_stream(m)
    allocate(m)


def settle_in(m: Model, context: str, thread: int) -> None:
    """Load the kernels of a context, and use its default streams."""
    m.contexts.append(context)
    number = context[1:]
    m.emit(thread, "cuModuleLoadData", f"&m{number}", "@image")
    for kernel in sorted({*KERNELS, "poke"}):
        function = f"&f{number}_{kernel}"
        m.emit(thread, "cuModuleGetFunction", function, f"m{number}", f'"{kernel}')


def create_context(m: Model) -> None:
    if len(m.contexts) > 2 or m.captures:
        return
    context, thread = m.new("c"), m.choices.take(THREADS)
    m.emit(thread, "cuCtxCreate_v2", f"&{context}", m.choices.pick((0, 4, 8)), 0)
    m.stacks[thread].append(context)
    m.devices[context] = 0
    settle_in(m, context, thread)


def destroy_context(m: Model) -> None:
    """Destroy a context with everything in it, after its work has ended."""
    own = [context for context in m.contexts if context != "c0"]
    if not own or m.captures:
        return
    context, thread = m.choices.pick(own), m.choices.take(THREADS)
    m.enter(thread, context)
    m.emit(thread, "cuCtxSynchronize")
    lanes = [lane for lane in m.lanes if lane.context == context]
    for lane in lanes:
        free_all(m, lane, thread)
        m.lanes.remove(lane)
        m.free_hosts += lane.hosts
        if not lane.is_default and m.choices.take(2):
            m.emit(thread, "cuStreamDestroy_v2", lane.stream)
    m.graphs = [graph for graph in m.graphs if graph.lane not in lanes]
    m.events.clear()  # which of them belonged to this context is not known
    m.contexts.remove(context)
    if context == m.primary:
        m.emit(thread, "cuDevicePrimaryCtxRelease_v2", m.devices[context])
    else:
        m.emit(thread, "cuCtxDestroy_v2", context)
    for other in range(THREADS):
        while context in m.stacks[other]:
            m.emit(other, "cuCtxSetCurrent", "c0")
            m.stacks[other] = ["c0"]


def push_pop(m: Model) -> None:
    thread, context = m.choices.take(THREADS), m.choices.pick([*m.contexts, 0])
    m.emit(thread, "cuCtxPushCurrent_v2", context)
    m.emit(thread, "cuCtxGetCurrent", "&c")
    m.emit(thread, "cuCtxPopCurrent_v2", "&c")


def create_stream(m: Model) -> None:
    if len(m.lanes) > 8:
        return
    context = m.choices.pick(m.contexts)
    thread = m.choices.take(THREADS)
    m.enter(thread, context)
    name, flags = m.new("s"), m.choices.pick((1, 0))
    if m.choices.take(3) == 2:
        priority = m.choices.pick((0, -1, -5))
        m.emit(thread, "cuStreamCreateWithPriority", f"&{name}", flags, priority)
    else:
        m.emit(thread, "cuStreamCreate", f"&{name}", flags)
    number = len(m.program.steps)
    m.add_lane(Lane(number=number, stream=name, context=context, is_blocking=flags == 0))


def use_default_stream(m: Model) -> None:
    """Use the legacy or a per-thread default stream, by its number or by the calls that mean it."""
    if m.captures or len(m.lanes) > 10:
        return
    context, thread = m.choices.pick(m.contexts), m.choices.take(THREADS)
    stream, suffix = m.choices.pick(DEFAULT_STREAMS)
    is_threads = suffix == "_ptsz" or stream == "2"
    of = thread if is_threads else None
    for lane in m.lanes:
        same = lane.is_default and lane.context == context
        if same and lane.thread == of:
            return
    number = len(m.program.steps)
    lane = Lane(number=number, stream=stream, context=context, suffix=suffix, thread=of)
    m.add_lane(lane)


def destroy_stream(m: Model) -> None:
    """Destroy a stream, with work in flight or not; its memory stays, but belongs to no lane."""
    lane = some_lane(m)
    if lane is None or lane.is_default or lane.capture or any(g.lane is lane for g in m.graphs):
        return
    thread = m.thread_for(lane)
    m.emit(thread, "cuStreamDestroy_v2", lane.stream)
    m.emit(thread, "cuCtxSynchronize")
    free_all(m, lane, thread)
    if m.choices.take(3) == 2 and not m.is_tame:  # already destroyed
        m.emit(thread, "cuStreamSynchronize", lane.stream)
        m.emit(thread, "cuMemsetD8Async", 0, 1, 16, lane.stream)
    m.lanes.remove(lane)
    if not m.captures:
        m.free_hosts += lane.hosts


def record_event(m: Model) -> None:
    lane = some_lane(m)
    if lane is None or lane.capture:
        return
    name = m.new("e")
    thread = m.thread_for(lane)
    m.emit(thread, "cuEventCreate", f"&{name}", m.choices.pick((0, 1, 2)))
    symbol = m.flavour(lane, "cuEventRecord")
    m.work(lane, symbol, f"{name}!", lane.stream, thread=thread)
    m.events.append(name)


def use_event(m: Model) -> None:
    if not m.events:
        return
    c = m.choices
    event, thread = c.pick(m.events), c.take(THREADS)
    match c.take(6):
        case 0 | 1:
            lane = some_lane(m)
            if lane and (not lane.capture or c.seldom()):
                symbol = m.flavour(lane, "cuStreamWaitEvent")
                m.work(lane, symbol, lane.stream, f"{event}!", 0)
        case 2:
            m.emit(thread, "cuEventSynchronize", f"{event}!")
        case 3:
            m.emit(thread, "cuEventQuery", f"{event}!", verb=c.pick(("ask", "poll")))
        case 4:
            m.emit(thread, "cuEventElapsedTime", "~4", c.pick(m.events), event, verb="ask")
        case _:
            m.events.remove(event)
            m.emit(thread, "cuEventDestroy_v2", f"{event}!")


def hand_over(m: Model) -> None:
    """Hand a buffer to another stream, through an event."""
    lanes = [lane for lane in m.lanes if not lane.capture]
    if len(lanes) < 2 or m.captures:
        return
    first = m.choices.take(len(lanes))
    giver, taker = lanes[first], lanes[first - 1]
    if giver.context != taker.context or (buffer := some_buffer(m, giver)) is None:
        return
    if buffer.in_graphs:
        return
    event = m.new("e")
    m.emit(m.thread_for(giver), "cuEventCreate", f"&{event}", 2)
    m.work(giver, m.flavour(giver, "cuEventRecord"), event, giver.stream, verb="order")
    wait = (m.flavour(taker, "cuStreamWaitEvent"), taker.stream, event, 0)
    m.work(taker, *wait, verb="order", relies_on_order=True)
    m.name_anew(buffer)
    giver.buffers.remove(buffer)
    taker.buffers.append(buffer)


def wait(m: Model) -> None:
    """Wait for a stream, or for everything."""
    lane = some_lane(m)
    if lane is None:
        return
    thread = m.thread_for(lane)
    match m.choices.take(4):
        case 0 | 1:
            m.order(thread, m.flavour(lane, "cuStreamSynchronize"), lane.stream)
            for host in lane.hosts:
                m.emit(thread, str(host), verb="look", relies_on_order=True)
        case 2:
            m.emit(thread, m.flavour(lane, "cuStreamQuery"), lane.stream, verb="ask")
        case _:
            m.emit(thread, "cuCtxSynchronize")


def ask(m: Model) -> None:
    """Ask what a program may want to know."""
    lane = some_lane(m)
    if lane is None:
        return
    thread, s = m.thread_for(lane), lane.stream
    buffer = f"{lane.buffers[0].name}!" if lane.buffers else "0"
    questions = (
        (m.flavour(lane, "cuStreamGetFlags"), s, "#4"),
        (m.flavour(lane, "cuStreamGetPriority"), s, "#4"),
        (m.flavour(lane, "cuStreamGetCtx"), s, "&c"),
        (m.flavour(lane, "cuStreamIsCapturing"), s, "#4"),
        ("cuCtxGetDevice", "#4"),
        ("cuCtxGetCurrent", "&c"),
        ("cuPointerGetAttribute", "#4", 2, buffer),
        ("cuMemGetInfo_v2", "~8", "~8"),
        ("cuDeviceGetAttribute", "#4", m.choices.take(100) + 1, 0),
    )
    m.emit(thread, *m.choices.pick(questions))


def leave(m: Model) -> None:
    """End a thread; the next step on it runs on a new thread."""
    thread = m.choices.take(THREADS - 1) + 1
    own = [lane for lane in m.lanes if lane.thread == thread]
    if own or any(capture.thread == thread for capture in m.captures):
        return
    m.emit(thread, "", verb="leave")
    m.stacks[thread] = []


def hold(m: Model) -> None:
    m.emit(0, "", verb="hold")


def tally(m: Model) -> None:
    m.emit(0, "", verb="tally")


def finish(m: Model, *, tidily: bool) -> None:
    """Wait for everything and look at it; with `tidily`, also free and destroy everything."""
    while m.captures:
        end_capture(m)
    for context in m.contexts:
        m.enter(0, context)
        m.emit(0, "cuCtxSynchronize")
    for host in range(16):
        m.emit(0, str(host), verb="look")
    if tidily:
        _give_back(m)
    m.emit(0, "", verb="tally")


def _give_back(m: Model) -> None:
    for graph in m.graphs:
        m.emit(0, "cuGraphExecDestroy", f"{graph.name}!")
    for lane in m.lanes:
        m.enter(0, lane.context)
        free_all(m, lane, 0)
        if not lane.is_default:
            m.emit(0, "cuStreamDestroy_v2", lane.stream)
    for pool in m.pools:
        m.emit(0, "cuMemPoolDestroy", pool)
    for event in m.events:
        m.emit(0, "cuEventDestroy_v2", f"{event}!")
