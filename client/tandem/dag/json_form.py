"""Graphs as JSON. docs/dag.md has the schema; incompatible changes increment VERSION."""

import json
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import islice
from typing import TextIO

from tandem._native import EdgeKind, OperationKind
from tandem.dag.graph import Graph
from tandem.dag.model import FLAG_NAMES, Access, Window

FORMAT, VERSION = "tandem-dag", 1
_OPERATIONS = {kind: kind.name.lower() for kind in OperationKind}
_EDGES = {kind: kind.name.lower() for kind in EdgeKind}
_MOST_NAMES = 1 << 16  # size of the caches
_BATCH = 4096  # rows written at once


def write(graph: Graph, file: TextIO) -> None:
    """Write the graph, one operation or edge per line; any size."""
    file.writelines(_pieces(graph))


def _pieces(graph: Graph) -> Iterator[str]:
    yield "{\n" + ",\n".join(f"{_text(k)}: {_text(v)}" for k, v in _head(graph).items())
    yield ',\n"operations": ['
    yield from _rows(_operations(graph))
    yield '\n],\n"edges": ['
    edges = graph.all_edges()
    yield from _rows(f'{{"from": {a}, "to": {b}, "kind": "{_EDGES[k]}"}}' for a, b, k in edges)
    yield "\n]\n}\n"


def _rows(rows: Iterator[str]) -> Iterator[str]:
    separator = "\n"
    while some := list(islice(rows, _BATCH)):
        yield separator + ",\n".join(some)
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


def _operations(graph: Graph) -> Iterator[str]:
    # There may be millions: formatting takes a quarter of the time of json.dumps of a dict.
    phases = graph.phases
    shown = graph.window.operations[graph.first : graph.last]
    for node, (kind, name, thread, _, at, stream, duration, of, size, blocks, flags, uses) in zip(
        graph.nodes, shown, strict=True
    ):
        phase = f', "phase": {_text(phases[node])}' if node in phases else ""
        accesses = f', "accesses": [{", ".join(map(_access, uses))}]' if uses else ""
        yield (
            f'{{"id": {node}, "kind": "{_OPERATIONS[kind]}", "name": {_name(name)}, '
            f'"thread": {thread}, "stream": {"null" if stream is None else stream}, '
            f'"submitted_ns": {at}, "duration_ns": {duration or "null"}, "object": {of}, '
            f'"bytes": {size}, "blocks": {blocks}, "flags": {_flags(flags)}{phase}{accesses}}}'
        )


@lru_cache(_MOST_NAMES)
def _access(access: Access) -> str:
    address, size, is_const = access
    return (
        f'{{"address": {address}, "bytes": {size}, "is_const": {"true" if is_const else "false"}}}'
    )


@cache
def _flags(flags: int) -> str:
    return _text([name for bit, name in FLAG_NAMES.items() if flags & bit])


@lru_cache(_MOST_NAMES)
def _name(name: str) -> str:
    return _text(name)


def _text(value: object) -> str:
    return json.dumps(value)
