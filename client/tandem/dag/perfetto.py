"""Graphs as Chrome's trace-event JSON, for ui.perfetto.dev: a track a stream or thread.

Begins are reconstructed. Edges between tracks are flows.
"""

from typing import TextIO

from tandem.chrome_trace import TraceWriter
from tandem.dag.graph import Graph
from tandem.dag.labels import Lane, lane_of, lanes_of, printable


def write(graph: Graph, file: TextIO) -> None:
    """Write the whole graph; any size."""
    with TraceWriter(file) as trace:
        tracks = _tracks(graph, trace)
        critical = frozenset(graph.analysis.critical_path)
        times = list(zip(graph.analysis.starts_ns, graph.analysis.ends_ns, strict=True))
        for node, (start_ns, end_ns) in zip(graph.nodes, times, strict=True):
            operation = graph.operation(node)
            pid, tid = tracks[lane_of(operation)]
            trace.slice(
                pid,
                tid,
                printable(operation.name),
                start_ns=start_ns,
                end_ns=end_ns,
                args={"operation": node, "bytes": operation.bytes, "critical": node in critical},
            )
        for number, (source, target, kind) in enumerate(graph.edges()):
            ends = [tracks[lane_of(graph.operation(node))] for node in (source, target)]
            if ends[0] != ends[1]:
                at_ns = (times[source - graph.first][0], times[target - graph.first][0])
                trace.flow(number, kind.name.lower(), ends=(ends[0], ends[1]), at_ns=at_ns)


def _tracks(graph: Graph, trace: TraceWriter) -> dict[Lane, tuple[int, int]]:
    # Process and thread of each lane in the file; streams have numbers no thread has.
    window = graph.window
    for process in window.processes:
        trace.process(process.pid, printable(f"{process.name} ({process.pid})"))
    tracks = {}
    for kind, number in lanes_of(graph):
        if kind == "stream":
            stream = window.streams[number]
            pid, tid, name = window.processes[stream.process].pid, (1 << 30) + number, stream.name
        else:
            thread = window.threads[number]
            pid, tid = window.processes[thread.process].pid, thread.tid
            name = f"thread {thread.tid}"
        trace.thread(pid, tid, name)
        tracks[kind, number] = (pid, tid)
    return tracks
