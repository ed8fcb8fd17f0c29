"""Generator operations on captures and graphs."""

from __future__ import annotations

from proof_data import (
    copy_in,
    copy_within,
    host_function,
    launch,
    memset,
    some_buffer,
    some_lane,
)
from proof_model import THREADS, WORDS, Buffer, Capture, Graph, Lane, Model
from proof_program import array, host_node, kernel_node, memset_node, parameters

RELAXED = 2  # CUstreamCaptureMode
CAPTURED = (launch, memset, copy_within, host_function, copy_in)


def begin_capture(m: Model) -> None:
    lane = some_lane(m)
    if lane is None or lane.capture or lane.is_default or len(m.captures) > 1:
        return
    mode, thread = m.choices.take(3), m.thread_for(lane)
    capture = Capture(thread=thread, mode=mode, origin=lane, lanes=[lane])
    _begin(m, capture)
    m.captures.append(capture)
    m.joins(lane, capture)


def _begin(m: Model, capture: Capture) -> None:
    """Begin a capture into a new graph, or into one that already has a node."""
    lane, thread = capture.origin, capture.thread
    if m.choices.take(3) < 2 or (buffer := some_buffer(m, lane)) is None:
        symbol = m.flavour(lane, "cuStreamBeginCapture_v2")
        m.emit(thread, symbol, f"{lane.stream}!", capture.mode)
        return
    graph, node = m.new("g"), m.new("n")
    m.emit(thread, "cuGraphCreate", f"&{graph}", 0)
    _add_node(m, lane, buffer, thread, (f"&{node}", graph, 0, 0), m.choices.take(4))
    capture.buffers.append(buffer)
    symbol = m.flavour(lane, "cuStreamBeginCaptureToGraph")
    after = (array([node]), 0, 1)
    m.emit(thread, symbol, f"{lane.stream}!", graph, *after, capture.mode)


def fork_capture(m: Model) -> None:
    """Let another stream join the capture."""
    others = [x for x in m.lanes if not x.capture and not x.is_default]
    if not m.captures or not others:
        return
    capture, lane = m.choices.pick(m.captures), m.choices.pick(others)
    if lane.context != capture.origin.context:
        return
    _order(m, capture.origin, lane, capture.thread)
    m.joins(lane, capture)
    capture.lanes.append(lane)


def _order(m: Model, before: Lane, after: Lane, thread: int) -> None:
    event = m.new("e")
    m.emit(thread, "cuEventCreate", f"&{event}", 2)
    m.emit(thread, m.flavour(before, "cuEventRecord"), event, before.stream)
    m.emit(thread, m.flavour(after, "cuStreamWaitEvent"), after.stream, event, 0)


def work_in_capture(m: Model) -> None:
    """Work in a capturing stream, since few of all streams capture."""
    if not m.captures:
        return
    all_lanes, m.lanes = m.lanes, [lane for lane in m.lanes if lane.capture]
    if m.lanes:
        m.choices.pick(CAPTURED)(m)
    m.lanes = all_lanes


def end_capture(m: Model) -> None:
    if not m.captures:
        return
    capture = m.choices.pick(m.captures)
    origin, thread = capture.origin, capture.thread
    if capture.mode == RELAXED:  # any thread may end it
        thread = m.choices.take(THREADS)
    # A wrong call may have made another context current, and an open capture would leave work
    # unfinished.
    m.stacks[thread] = []
    m.enter(thread, origin.context)
    forgets = m.choices.seldom()
    for lane in capture.lanes[1:]:
        if not forgets:  # if it forgets, the capture ends unjoined, which is an error
            _order(m, lane, origin, thread)
        lane.capture = None
    origin.capture = None
    m.captures.remove(capture)
    graph = m.new("g")
    m.emit(thread, m.flavour(origin, "cuStreamEndCapture"), f"{origin.stream}!", f"&{graph}")
    m.emit(thread, "cuGraphGetNodes", f"{graph}!", 0, "#8")
    _instantiate(m, graph, origin, capture.buffers, thread)


def build_graph(m: Model) -> None:
    """Build a chain of nodes by hand."""
    lane = some_lane(m)
    if lane is None or lane.capture or (buffer := some_buffer(m, lane)) is None:
        return
    thread = m.thread_for(lane)
    kinds = [m.choices.take(4) for _ in range(m.choices.take(4) + 1)]
    graph = _chain(m, lane, buffer, thread, kinds)
    m.emit(thread, "cuGraphGetNodes", graph, 0, "#8")
    _instantiate(m, graph, lane, [buffer], thread)
    m.graphs[-1].kinds = kinds


def _chain(m: Model, lane: Lane, buffer: Buffer, thread: int, kinds: list[int]) -> str:
    graph, before = m.new("g"), []
    m.emit(thread, "cuGraphCreate", f"&{graph}", 0)
    for kind in kinds:
        node = m.new("n")
        after = (array(before), len(before)) if before else (0, 0)
        _add_node(m, lane, buffer, thread, (f"&{node}", graph, *after), kind)
        before = [node]
    return graph


def _add_node(m: Model, lane: Lane, buffer: Buffer, thread: int, where: tuple, kind: int) -> None:
    c, name = m.choices, f"{buffer.name}!"
    match kind:
        case 0 | 1:
            values = parameters(name, c.take(90) * 2 + 3, c.take(200), WORDS)
            node = kernel_node(f"f{lane.context[1:]}_mix!", c.pick((1, 4)), 32, values)
            m.emit(thread, "cuGraphAddKernelNode_v2", *where, node)
        case 2:
            node = memset_node(name, c.take(200), 4, c.take(100) + 1)
            m.emit(thread, "cuGraphAddMemsetNode", *where, node, lane.context)
        case _:
            lane.notes += 1
            node = host_node(lane.number * 1000 + lane.notes)
            m.emit(thread, "cuGraphAddHostNode", *where, node)


def _instantiate(m: Model, graph: str, lane: Lane, buffers: list[Buffer], thread: int) -> None:
    name = m.new("x")
    m.emit(thread, "cuGraphInstantiateWithFlags", f"&{name}", f"{graph}!", 0)
    if m.choices.take(2):
        m.emit(thread, "cuGraphDestroy", f"{graph}!")
    for buffer in buffers:
        buffer.in_graphs += 1
    m.graphs.append(Graph(name=name, lane=lane, buffers=buffers))


def launch_graph(m: Model) -> None:
    """Launch a graph in its lane, if that still has its buffers; or only upload it."""
    ready = [g for g in m.graphs if not g.lane.capture and set(g.buffers) <= set(g.lane.buffers)]
    if not ready:
        return
    graph = m.choices.pick(ready)
    lane, symbol = graph.lane, m.choices.pick(("cuGraphLaunch", "cuGraphLaunch", "cuGraphUpload"))
    m.work(lane, m.flavour(lane, symbol), f"{graph.name}!", lane.stream)


def update_graph(m: Model) -> None:
    """Update the nodes of an executable graph, seldom with nodes that it does not have."""
    made = [g for g in m.graphs if g.kinds and g.buffers[0] in g.lane.buffers]
    if not made or m.captures:
        return
    graph = m.choices.pick(made)
    thread, kinds = m.thread_for(graph.lane), [*graph.kinds]
    if m.choices.seldom():
        kinds.append(0)
    other = _chain(m, graph.lane, graph.buffers[0], thread, kinds)
    if m.choices.take(2):
        m.emit(thread, "cuGraphExecUpdate_v2", f"{graph.name}!", f"{other}!", "~24")
    else:
        m.emit(thread, "cuGraphExecUpdate", f"{graph.name}!", f"{other}!", "&n", "#4")
    m.emit(thread, "cuGraphDestroy", f"{other}!")


def end_graph(m: Model) -> None:
    if not m.graphs or m.captures:
        return
    graph = m.choices.pick(m.graphs)
    thread = m.thread_for(graph.lane)
    m.emit(thread, m.flavour(graph.lane, "cuStreamSynchronize"), graph.lane.stream)
    m.emit(thread, "cuGraphExecDestroy", f"{graph.name}!")
    m.graphs.remove(graph)
    for buffer in graph.buffers:
        buffer.in_graphs -= 1
