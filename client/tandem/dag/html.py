"""A graph as one HTML page: a picture to zoom into, and tables. Needs no network."""

from collections import Counter
from collections.abc import Iterator
from html import escape
from pathlib import Path
from string import Template
from typing import TextIO

from tandem._page import SORTING, STYLE, count, fact, note, plain, span, table
from tandem.dag import svg
from tandem.dag.drawing import Drawing, draw
from tandem.dag.graph import Graph
from tandem.dag.model import ON_GPU
from tandem.dag.stats import Stats, stats_of

_TEMPLATE = Path(__file__).with_name("page.html")
_SCRIPT = Path(__file__).with_name("page.js")
_MOST_KERNELS = 200


def write(graph: Graph, file: TextIO) -> None:
    """Write the page.

    Raises:
        UsageError: the graph is too large to draw.
    """
    drawing, stats = draw(graph), stats_of(graph)
    page = Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(
        title=escape(_title(graph)),
        style=STYLE,
        picture_style=svg.STYLE,
        kind=escape(_kind(drawing)),
        facts="".join(fact(name, value) for name, value in stats.facts()),
        notes="".join(map(note, [*drawing.notes, *stats.doubts()])),
        width=svg.WIDTH,
        height=svg.height_of(drawing),
        length=drawing.length_ns,
        left=svg.NAMES_WIDTH,
        timed="yes" if drawing.is_timed else "no",
        picture="".join(svg.elements(drawing, graph)),
        tables="".join(_tables(graph, stats)),
        script=_SCRIPT.read_text(encoding="utf-8"),
        sorting=SORTING,
    )
    file.write(page)


def _title(graph: Graph) -> str:
    part = "" if graph.iteration is None else f", iteration {graph.iteration}"
    return f"{plain(graph.window.source)}{part}"


def _kind(drawing: Drawing) -> str:
    if drawing.is_timed:
        return (
            "Start times are reconstructed: every operation starts as soon as it was submitted and "
            "all that it has to wait for has ended."
        )
    return (
        "No GPU times were recorded, so all operations are drawn with the same length, in the "
        "order they have to keep; tandem trace calls --device-times records times."
    )


def _tables(graph: Graph, stats: Stats) -> Iterator[str]:
    for title, header, rows in stats.tables():
        yield f"<section>{table(title, header, rows)}</section>"
    yield f'<section class="wide">{_kernels(graph)}</section>'


def _kernels(graph: Graph) -> str:
    counts: Counter[str] = Counter()
    times: Counter[str] = Counter()
    critical: Counter[str] = Counter()
    for node in graph.nodes:
        operation = graph.operation(node)
        if operation.kind in ON_GPU:
            counts[operation.name] += 1
            times[operation.name] += operation.duration_ns
    for node in graph.analysis.critical_path:
        critical[graph.operation(node).name] += graph.operation(node).duration_ns
    rows = (
        (
            name,
            count(counts[name]),
            span(total),
            span(total / counts[name]),
            span(critical[name]),
        )
        for name, total in sorted(times.items(), key=lambda item: (-item[1], item[0]))
    )
    header = ("operation", "count", "total", "mean", "on the critical path")
    return table("Operations of the GPU", header, list(rows)[:_MOST_KERNELS])
