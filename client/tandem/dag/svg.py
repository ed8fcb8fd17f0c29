"""A drawing as SVG: a file of its own, or the part inside the HTML page.

All text from a job is escaped: whoever named a kernel chose it. Positions show the whole graph at a
fixed width; when somebody zooms, the page moves boxes and edges by their data-s and data-e (ns).
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import TextIO

from tandem._page import hue
from tandem._text import printable
from tandem.dag.drawing import Drawing, Edge, Placed, draw
from tandem.dag.graph import Graph
from tandem.dag.model import Operation
from tandem.trace.lines import duration_text
from tandem.units import format_bytes

NAMES_WIDTH, AXIS_HEIGHT, LANE_HEIGHT, BOX_HEIGHT, BAND_HEIGHT = 130, 26, 46, 26, 18
WIDTH = 1400
LEAST_WIDTH = 4
_RIGHT = 14
_NOTE_HEIGHT = 18
_TICKS = 10
_LEAST_TEXT = 22
_ORDERS = ("stream", "event", "legacy", "host", "overlap")
_MOST_PARTS = 12
_BAND_HUES = {"forward": 150, "backward": 215, "update": 45}
STYLE = Path(__file__).with_name("picture.css").read_text(encoding="utf-8")


def write(graph: Graph, file: TextIO) -> None:
    """Write the graph as a file of its own.

    Raises:
        UsageError: the graph is too large to draw.
    """
    drawing = draw(graph)
    below = height_of(drawing)
    width, height = WIDTH, below + len(drawing.notes) * _NOTE_HEIGHT
    file.write(
        f'<svg xmlns="http://www.w3.org/2000/svg" class="dag" role="img" width="{width}" '
        f'height="{height}" viewBox="0 0 {width} {height}">\n'
        f"<title>{_escaped(graph.window.source)}</title>\n<style>{STYLE}</style>\n"
    )
    file.writelines(elements(drawing, graph))
    for place, note in enumerate(drawing.notes):
        y = below + place * _NOTE_HEIGHT + 8
        file.write(f'<text class="note" x="8" y="{y}">{_escaped(note)}</text>\n')
    file.write("</svg>\n")


def height_of(drawing: Drawing) -> int:
    """The height of the whole picture."""
    return _below_lanes(drawing) + (BAND_HEIGHT + 8 if drawing.bands else 0) + 8


def _below_lanes(drawing: Drawing) -> int:
    return AXIS_HEIGHT + len(drawing.lanes) * LANE_HEIGHT


def elements(drawing: Drawing, graph: Graph) -> Iterator[str]:
    """The content of the svg element."""
    yield (
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" '
        'markerHeight="6" orient="auto-start-reverse"><path d="M0 0L8 4L0 8Z"/></marker></defs>\n'
    )
    yield from _lanes(drawing)
    yield from _axis(drawing)
    yield from _bands(drawing)
    for placed in drawing.boxes:
        yield _box(placed, drawing, graph)
    for edge in reversed(drawing.edges):  # draw the critical path on top
        yield _edge(edge, drawing)


def lane_top(lane: int) -> int:
    """The y position at which the boxes of a lane begin."""
    return AXIS_HEIGHT + lane * LANE_HEIGHT + (LANE_HEIGHT - BOX_HEIGHT) // 2


def _lanes(drawing: Drawing) -> Iterator[str]:
    for lane, name in enumerate(drawing.lanes):
        top = AXIS_HEIGHT + lane * LANE_HEIGHT
        shade = f'<rect x="0" y="{top}" width="100%" height="{LANE_HEIGHT}"/>' if lane % 2 else ""
        middle = top + LANE_HEIGHT // 2 + 4
        yield f'<g class="lane">{shade}<text x="8" y="{middle}">{_escaped(name)}</text></g>\n'


def _axis(drawing: Drawing) -> Iterator[str]:
    bottom = height_of(drawing)
    scale = _scale(drawing)
    yield '<g class="axis">'
    for ns in range(0, drawing.length_ns + 1, step_of(drawing.length_ns)):
        x = NAMES_WIDTH + ns * scale
        text = duration_text(ns) if drawing.is_timed else str(ns)
        yield (
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{AXIS_HEIGHT - 6}" y2="{bottom}"/>'
            f'<text x="{x:.1f}" y="14">{text}</text>'
        )
    yield "</g>\n"


def _bands(drawing: Drawing) -> Iterator[str]:
    top, scale = _below_lanes(drawing) + 4, _scale(drawing)
    for band in drawing.bands:
        left = NAMES_WIDTH + band.start_ns * scale
        width = max(LEAST_WIDTH, (band.end_ns - band.start_ns) * scale)
        thin = " thin" if width < _LEAST_TEXT else ""
        yield (
            f'<g class="band{thin}" style="--hue:{_BAND_HUES[band.name]}" '
            f'data-s="{band.start_ns}" data-e="{band.end_ns}"><title>{band.name}</title>'
            f'<svg x="{left:.1f}" y="{top}" width="{width:.1f}" height="{BAND_HEIGHT}">'
            f'<rect class="body" width="100%" height="{BAND_HEIGHT}"/>'
            f'<text x="6" y="13">{band.name}</text></svg></g>\n'
        )


def step_of(length_ns: int) -> int:
    """The distance of ticks: 1, 2 or 5 times a power of ten, for about ten ticks."""
    power = 1
    while power * 100 <= length_ns:
        power *= 10
    return next(n * power for n in (1, 2, 5, 10) if length_ns <= n * power * _TICKS)


def _scale(drawing: Drawing) -> float:
    return (WIDTH - NAMES_WIDTH - _RIGHT) / max(1, drawing.length_ns)


def _box(placed: Placed, drawing: Drawing, graph: Graph) -> str:
    scale = _scale(drawing)
    left = NAMES_WIDTH + placed.start_ns * scale
    width = max(LEAST_WIDTH, (placed.end_ns - placed.start_ns) * scale)
    hot = f'<rect class="path" y="{BOX_HEIGHT - 4}" width="100%" height="4"/>'
    thin = " thin" if width < _LEAST_TEXT else ""
    return (
        f'<g class="box {placed.look}{thin}" id="b{placed.number}" '
        f'style="--hue:{hue(placed.lane)}" '
        f'data-s="{placed.start_ns}" data-e="{placed.end_ns}" data-lane="{placed.lane}">'
        f"<title>{_escaped(describe(placed, drawing, graph))}</title>"
        f'<svg x="{left:.1f}" y="{lane_top(placed.lane)}" width="{width:.1f}" '
        f'height="{BOX_HEIGHT}"><rect class="body" width="100%" height="{BOX_HEIGHT}"/>'
        f'<text x="6" y="16">{_escaped(placed.box.label)}</text>'
        f"{hot if placed.is_critical else ''}</svg></g>\n"
    )


def _edge(edge: Edge, drawing: Drawing) -> str:
    scale = _scale(drawing)
    lanes = [drawing.boxes[number].lane for number in (edge.source, edge.target)]
    down = lanes[1] > lanes[0]
    y1 = lane_top(lanes[0]) + (BOX_HEIGHT if down else 0)
    y2 = lane_top(lanes[1]) + (0 if down else BOX_HEIGHT)
    x1, x2 = (NAMES_WIDTH + ns * scale for ns in (edge.start_ns, edge.end_ns))
    kind = edge.kind.name.lower()
    group = kind if kind in _ORDERS else "data"
    return (
        f'<path class="edge {group}{" hot" if edge.is_critical else ""}" '
        f'data-s="{edge.start_ns}" data-e="{edge.end_ns}" data-y1="{y1}" data-y2="{y2}" '
        f'data-from="{edge.source}" data-to="{edge.target}" marker-end="url(#arrow)" '
        f'd="{_curve(x1, y1, x2, y2)}"><title>{kind.replace("_", " ")}</title></path>\n'
    )


def _curve(x1: float, y1: int, x2: float, y2: int) -> str:
    middle = (y1 + y2) / 2
    return f"M{x1:.1f} {y1}C{x1:.1f} {middle:g} {x2:.1f} {middle:g} {x2:.1f} {y2}"


def describe(placed: Placed, drawing: Drawing, graph: Graph) -> str:
    """The description of a box, in several lines."""
    box = placed.box
    lines = [box.label, drawing.lanes[placed.lane]]
    if drawing.is_timed:
        length = duration_text(placed.end_ns - placed.start_ns)
        lines.append(f"from {duration_text(placed.start_ns)}, for {length}")
    if placed.is_critical:
        lines.append("on the critical path")
    operations = [graph.operation(node) for node in box.nodes]
    lines += _facts(operations[0]) if len(operations) == 1 else _counts(operations)
    first, last = box.nodes[0], box.nodes[-1]
    lines.append(f"operation {first}" if first == last else f"operations {first} to {last}")
    return "\n".join(lines)


def _facts(operation: Operation) -> Iterator[str]:
    if operation.blocks:
        yield f"{operation.blocks:,} blocks"
    if operation.bytes:
        yield format_bytes(operation.bytes)
    for address, size, is_const in operation.accesses:
        verb = "reads" if is_const else "reads or writes"
        yield f"{verb} {format_bytes(size)} at {address:#x}"


def _counts(operations: Sequence[Operation]) -> Iterator[str]:
    counts = Counter(operation.name for operation in operations)
    for name, count in counts.most_common(_MOST_PARTS):
        yield f"{count:,} \u00d7 {name}"
    if len(counts) > _MOST_PARTS:
        yield f"and {len(counts) - _MOST_PARTS} more kinds"


def _escaped(text: str) -> str:
    return escape("\n".join(printable(line) for line in text.split("\n")))
