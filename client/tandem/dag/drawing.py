"""The layout of a graph: lanes of boxes along a time axis, and edges between them.

Independent of the output format; times are nanoseconds since the begin of the drawing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import itemgetter

from tandem._native import EdgeKind, OperationKind
from tandem.dag.boxes import Box, Ties, boxes_of
from tandem.dag.graph import Graph
from tandem.dag.labels import Lane, lane_names, lane_of, lanes_of
from tandem.dag.limits import refuse_too_many
from tandem.dag.model import ON_GPU
from tandem.trace.lines import duration_text

_MOST_BOXES = 4_000
_MOST_EDGES = 2_000
_MOST_LANES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A box with its position."""

    number: int
    box: Box
    lane: int
    look: str  # kernel, copy, order, host
    start_ns: int
    end_ns: int
    is_critical: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """An edge between boxes of two lanes, from the end of one to where the other can continue."""

    source: int
    target: int
    kind: EdgeKind
    is_critical: bool
    start_ns: int
    end_ns: int  # if the target is a wait that began earlier: its end


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """Consecutive launches of one phase of the iteration."""

    name: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """Everything that is drawn."""

    lanes: tuple[str, ...]
    boxes: tuple[Placed, ...]
    edges: tuple[Edge, ...]
    bands: tuple[Band, ...]
    length_ns: int
    is_timed: bool  # False: all operations are drawn equally long
    notes: tuple[str, ...]  # what the drawing leaves out


def draw(graph: Graph) -> Drawing:
    """Lay the graph out.

    Raises:
        UsageError: the graph is too large to draw.
    """
    refuse_too_many(graph.window, len(graph), "svg")
    return _Layout(graph).drawing()


class _Layout:
    """Builds the drawing of one graph."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._is_timed = is_timed(graph)
        self._times = _reconstructed(graph) if self._is_timed else _counted(graph)
        self._begin_ns = min((start for start, _ in self._times), default=0)
        path = graph.analysis.critical_path
        self._lanes = [lane_of(graph.operation(node)) for node in graph.nodes]
        self._critical = frozenset(path)
        self._steps = frozenset(pairwise(path))
        self._notes: list[str] = []

    def drawing(self) -> Drawing:
        found = lanes_of(self._graph)
        shown = dict(list(found.items())[:_MOST_LANES])
        if len(found) > len(shown):
            self._notes.append(f"The picture shows {len(shown)} of {len(found)} lanes.")
        across = [edge for edge in self._graph.edges() if self._crosses(edge, shown)]
        boxes = self._boxes(shown, across)
        names = lane_names(self._graph)
        return Drawing(
            lanes=tuple(names[lane] for lane in shown),
            boxes=boxes,
            edges=self._edges(across, boxes),
            bands=tuple(self._bands()),
            length_ns=max((box.end_ns for box in boxes), default=0),
            is_timed=self._is_timed,
            notes=tuple(self._notes),
        )

    def _bands(self) -> Iterator[Band]:
        phases = sorted(self._graph.phases.items())
        for name, group in groupby(phases, key=itemgetter(1)):
            times = [self._time(node) for node, _ in group]
            begin, end = min(start for start, _ in times), max(end for _, end in times)
            yield Band(name=name, start_ns=begin - self._begin_ns, end_ns=end - self._begin_ns)

    def _crosses(self, edge: tuple[int, int, EdgeKind], shown: Mapping[Lane, object]) -> bool:
        first = self._graph.first
        source, target = self._lanes[edge[0] - first], self._lanes[edge[1] - first]
        return source != target and source in shown and target in shown

    def _boxes(
        self, lanes: Mapping[Lane, Sequence[int]], across: Sequence[tuple[int, int, EdgeKind]]
    ) -> tuple[Placed, ...]:
        ties = Ties(
            left=frozenset(source for source, _, _ in across),
            entered=frozenset(target for _, target, _ in across),
        )
        operation = self._graph.operation
        made = [
            (lane, box)
            for lane, nodes in enumerate(lanes.values())
            for box in boxes_of(nodes, [operation(n).name for n in nodes], ties)
        ]
        if len(made) > _MOST_BOXES:
            made = self._merged(made)
        return tuple(self._placed(i, lane, box) for i, (lane, box) in enumerate(made))

    def _merged(self, made: Sequence[tuple[int, Box]]) -> list[tuple[int, Box]]:
        # Merge boxes that are close together, with a reach as large as it takes.
        length = max(end for _, end in self._times) - self._begin_ns
        reach_ns = max(1, length // _MOST_BOXES)
        spans = [
            (lane, self._time(box.nodes[0])[0], self._time(box.nodes[-1])[1]) for lane, box in made
        ]
        groups = _close(spans, reach_ns)
        while len(groups) > _MOST_BOXES:
            reach_ns *= 2
            groups = _close(spans, reach_ns)
        self._notes.append(f"What lies within {duration_text(reach_ns)} is drawn as one.")
        return [
            (made[g.start][0], _one([box for _, box in made[g.start : g.stop]])) for g in groups
        ]

    def _placed(self, number: int, lane: int, box: Box) -> Placed:
        start, end = self._time(box.nodes[0])[0], max(self._time(n)[1] for n in box.nodes)
        return Placed(
            number=number,
            box=box,
            lane=lane,
            look=_LOOKS.get(self._graph.operation(box.nodes[0]).kind, "order"),
            start_ns=start - self._begin_ns,
            end_ns=max(start, end) - self._begin_ns,
            is_critical=not self._critical.isdisjoint(box.nodes),
        )

    def _edges(
        self, across: Sequence[tuple[int, int, EdgeKind]], boxes: Sequence[Placed]
    ) -> tuple[Edge, ...]:
        owner = {node: placed for placed in boxes for node in placed.box.nodes}
        edges = {
            _edge(owner[source], owner[target], kind, is_critical=(source, target) in self._steps)
            for source, target, kind in across
            if owner[source] is not owner[target]
        }
        ordered = sorted(edges, key=lambda e: (not e.is_critical, e.target, e.source, e.kind.value))
        if len(ordered) > _MOST_EDGES:
            self._notes.append(f"The picture shows {_MOST_EDGES} of {len(ordered)} edges.")
        return tuple(ordered[:_MOST_EDGES])

    def _time(self, node: int) -> tuple[int, int]:
        return self._times[node - self._graph.first]


_LOOKS = {
    OperationKind.LAUNCH: "kernel",
    OperationKind.GRAPH: "kernel",
    OperationKind.COPY: "copy",
    OperationKind.MEMSET: "copy",
    OperationKind.SYNC_STREAM: "host",
    OperationKind.SYNC_EVENT: "host",
    OperationKind.SYNC_CONTEXT: "host",
    OperationKind.ALLOC: "host",
    OperationKind.FREE: "host",
}


def is_timed(graph: Graph) -> bool:
    """Whether the duration of any work on the GPU is known."""
    return any(op.duration_ns and op.kind in ON_GPU for op in map(graph.operation, graph.nodes))


def _reconstructed(graph: Graph) -> list[tuple[int, int]]:
    return list(zip(graph.analysis.starts_ns, graph.analysis.ends_ns, strict=True))


def _counted(graph: Graph) -> list[tuple[int, int]]:
    # One time unit each, as early as the edges allow.
    starts = dict.fromkeys(graph.nodes, 0)
    for source, target, _ in graph.edges():
        starts[target] = max(starts[target], starts[source] + 1)
    return [(start, start + 1) for start in starts.values()]


def _edge(source: Placed, target: Placed, kind: EdgeKind, *, is_critical: bool) -> Edge:
    return Edge(
        source=source.number,
        target=target.number,
        kind=kind,
        is_critical=is_critical,
        start_ns=source.end_ns,
        end_ns=min(max(source.end_ns, target.start_ns), target.end_ns),
    )


def _close(spans: Sequence[tuple[int, int, int]], reach_ns: int) -> list[range]:
    # `spans` are lane, begin and end. Groups neighbours in a lane that together span at most
    # `reach_ns`.
    groups: list[range] = []
    first, limit = 0, -1
    for place, (lane, begin_ns, end_ns) in enumerate(spans):
        if place and (lane != spans[first][0] or end_ns > limit):
            groups.append(range(first, place))
            first = place
        if place == first:
            limit = begin_ns + reach_ns
    return [*groups, range(first, len(spans))]


def _one(boxes: Sequence[Box]) -> Box:
    if len(boxes) == 1:
        return boxes[0]
    nodes = tuple(node for box in boxes for node in box.nodes)
    parts = tuple(part for box in boxes for part in box.parts * box.repeats)
    return Box(nodes=nodes, label=f"{len(nodes)} operations", parts=parts)
