"""Display names of operations, and of the lanes in which they are drawn.

A lane is a stream, or a thread with its host operations.
"""

from tandem._native import OperationKind
from tandem.dag.graph import Graph
from tandem.dag.model import Operation
from tandem.trace.lines import duration_text
from tandem.units import format_bytes

Lane = tuple[str, int]  # "stream" or "thread", and its number in the window


def lanes_of(graph: Graph) -> dict[Lane, list[int]]:
    """The nodes of each lane; streams first, in the order of the window."""
    lanes: dict[Lane, list[int]] = {}
    for node in graph.nodes:
        lanes.setdefault(lane_of(graph.operation(node)), []).append(node)
    return dict(sorted(lanes.items()))


def lane_of(operation: Operation) -> Lane:
    """The lane of an operation; waiting for a stream belongs to the thread that waits."""
    if operation.stream is None or operation.kind is OperationKind.SYNC_STREAM:
        return "thread", operation.thread
    return "stream", operation.stream


def lane_names(graph: Graph) -> dict[Lane, str]:
    """The names of all possible lanes, with the pid if there are several processes."""
    window = graph.window
    names = {("stream", i): (s.process, s.name) for i, s in enumerate(window.streams)}
    names |= {("thread", i): (t.process, f"thread {t.tid}") for i, t in enumerate(window.threads)}
    if len(window.processes) == 1:
        return {lane: name for lane, (_, name) in names.items()}
    pids = [process.pid for process in window.processes]
    return {lane: f"{pids[process]} {name}" for lane, (process, name) in names.items()}


def label_of(operation: Operation) -> str:
    """The operation's name, size and duration."""
    parts = [operation.name]
    if operation.bytes:
        parts.append(format_bytes(operation.bytes))
    if operation.duration_ns:
        parts.append(duration_text(operation.duration_ns))
    return " ".join(parts)
