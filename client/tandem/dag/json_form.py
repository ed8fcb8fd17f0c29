"""Graphs as JSON. docs/dag.md has the schema; a change that breaks readers raises VERSION."""

import json
from collections.abc import Iterator
from typing import TextIO

from tandem.dag.graph import Graph
from tandem.dag.model import FLAG_NAMES, Window

FORMAT, VERSION = "tandem-dag", 1


def write(graph: Graph, file: TextIO) -> None:
    """Write the graph, an operation or edge a line; any size."""
    file.writelines(_pieces(graph))


def _pieces(graph: Graph) -> Iterator[str]:
    yield "{\n" + ",\n".join(f"{_text(k)}: {_text(v)}" for k, v in _head(graph).items())
    yield ',\n"operations": ['
    yield from _rows(_text(_operation(n, graph)) for n in graph.nodes)
    yield '\n],\n"edges": ['
    edges = graph.all_edges()
    yield from _rows(_text({"from": a, "to": b, "kind": k.name.lower()}) for a, b, k in edges)
    yield "\n]\n}\n"


def _rows(rows: Iterator[str]) -> Iterator[str]:
    separator = "\n"
    for row in rows:
        yield separator + row
        separator = ",\n"


def _head(graph: Graph) -> dict[str, object]:
    window = graph.window
    return {
        "format": FORMAT,
        "version": VERSION,
        "source": window.source,
        "iteration": graph.iteration,
        "iterations": [list(pair) for pair in window.iterations],
        "iterations_are_marked": window.is_marked,
        "unknown": _unknown(window),
        "processes": [{"pid": p.pid, "name": p.name} for p in window.processes],
        "streams": [
            {
                "process": s.process,
                "context": s.context,
                "kind": s.kind.name.lower(),
                "name": s.name,
            }
            for s in window.streams
        ],
        "threads": [{"process": t.process, "tid": t.tid} for t in window.threads],
    }


def _unknown(window: Window) -> dict[str, object]:
    unknown = window.unknown
    return {
        "lost_calls": unknown.lost_calls,
        "left_out": dict(sorted(unknown.left_out.items())),
        "is_cut_short": unknown.is_cut_short,
        "gaps": list(window.gaps),
    }


def _operation(node: int, graph: Graph) -> dict[str, object]:
    operation = graph.operation(node)
    row: dict[str, object] = {
        "id": node,
        "kind": operation.kind.name.lower(),
        "name": operation.name,
        "thread": operation.thread,
        "stream": operation.stream,
        "submitted_ns": operation.submitted_ns,
        "duration_ns": operation.duration_ns or None,
        "object": operation.object,
        "bytes": operation.bytes,
        "blocks": operation.blocks,
        "flags": [name for bit, name in FLAG_NAMES.items() if operation.flags & bit],
    }
    if node in graph.phases:
        row["phase"] = graph.phases[node]
    if operation.accesses:
        row["accesses"] = [
            {"address": a.address, "bytes": a.bytes, "is_const": a.is_const}
            for a in operation.accesses
        ]
    return row


def _text(value: object) -> str:
    return json.dumps(value)
