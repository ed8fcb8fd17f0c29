"""Graphs as Chrome trace-event JSON, for ui.perfetto.dev: a track for each stream and thread.

Start times are reconstructed. Edges between tracks are flows.
"""

from typing import TextIO

from tandem._text import printable
from tandem.chrome_trace import TraceWriter
from tandem.dag.graph import Graph
from tandem.dag.labels import Lane, lane_of, lanes_of

_Track = tuple[int, int]  # process and thread in the file


def write(graph: Graph, file: TextIO) -> None:
    """Write the whole graph; any size."""
    with TraceWriter(file) as trace:
        places = _places(graph, trace)
        critical = frozenset(graph.analysis.critical_path)
        times = list(zip(graph.analysis.starts_ns, graph.analysis.ends_ns, strict=True))
        for node, (start_ns, end_ns), (pid, tid) in zip(graph.nodes, times, places, strict=True):
            operation = graph.operation(node)
            trace.slice(
                pid,
                tid,
                printable(operation.name),
                start_ns=start_ns,
                end_ns=end_ns,
                args={"operation": node, "bytes": operation.bytes, "critical": node in critical},
            )
        for number, (source, target, kind) in enumerate(graph.edges()):
            begin, end = source - graph.first, target - graph.first
            if places[begin] != places[end]:
                ends, at_ns = (places[begin], places[end]), (times[begin][0], times[end][0])
                trace.flow(number, kind.name.lower(), ends=ends, at_ns=at_ns)


def _places(graph: Graph, trace: TraceWriter) -> list[_Track]:
    # The track of each node.
    tracks = _tracks(graph, trace)
    return [tracks[lane_of(graph.operation(node))] for node in graph.nodes]


def _tracks(graph: Graph, trace: TraceWriter) -> dict[Lane, _Track]:
    # The track of each lane; streams get numbers that no thread has.
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
