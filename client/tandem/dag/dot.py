"""Writes graphs in graphviz's language: a cluster for each stream, a node for each operation."""

from collections.abc import Iterator
from typing import TextIO

from tandem._native import EdgeKind
from tandem._text import printable
from tandem.dag.graph import Graph
from tandem.dag.labels import label_of, lane_names, lanes_of
from tandem.dag.limits import refuse_too_many

_STYLES = {
    "STREAM": "color=black",
    "EVENT": "color=blue",
    "LEGACY": "color=orange",
    "HOST": "color=gray,style=dashed",
    "OVERLAP": "color=black,style=dashed",
    "READ_AFTER_WRITE": "color=red,style=dotted",
    "WRITE_AFTER_READ": "color=red,style=dotted",
    "WRITE_AFTER_WRITE": "color=red,style=dotted",
}


def write(graph: Graph, file: TextIO) -> None:
    """Write the graph.

    Raises:
        UsageError: there are too many nodes to lay out.
    """
    refuse_too_many(graph.window, len(graph), "dot")
    file.writelines(_lines(graph))


def _lines(graph: Graph) -> Iterator[str]:
    yield "digraph tandem {\n  rankdir=LR;\n  node [shape=box, fontname=sans];\n"
    names = lane_names(graph)
    for place, (lane, nodes) in enumerate(lanes_of(graph).items()):
        yield f"  subgraph cluster_{place} {{\n    label={_quoted(names[lane])};\n"
        for node in nodes:
            yield f"    n{node} [label={_quoted(label_of(graph.operation(node)))}];\n"
        yield "  }\n"
    for source, node, kind in graph.all_edges():
        if kind is EdgeKind.UNKNOWN_DATA:  # almost every node has one: it tells nothing
            continue
        yield f"  n{source} -> n{node} [{_STYLES[kind.name]}];\n"
    yield "}\n"


def _quoted(text: str) -> str:
    escaped = printable(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
