"""The part of a window that is shown: its operations as nodes, and the edges between them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tandem._native import Analysis, Dag, EdgeKind, analyse
from tandem.dag.build import build
from tandem.dag.iterations import bounds
from tandem.dag.model import Operation, Window
from tandem.dag.phases import phases_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """Nodes are the operations `first` to before `last` of the window, under those numbers."""

    window: Window
    dag: Dag
    first: int
    last: int
    iteration: int | None  # None: the whole window
    phases: dict[int, str]  # launch -> forward, backward or update; empty: not known
    analysis: Analysis

    @property
    def nodes(self) -> range:
        """The numbers of the nodes."""
        return range(self.first, self.last)

    def __len__(self) -> int:
        return self.last - self.first

    def operation(self, node: int) -> Operation:
        """What a node does."""
        return self.window.operations[node]

    def edges(self) -> Iterator[tuple[int, int, EdgeKind]]:
        """Orders: from, to and why, by the node they lead to, then by the one they come from."""
        return self._edges(self.dag.edges)

    def data_edges(self) -> Iterator[tuple[int, int, EdgeKind]]:
        """The same of what is written and read."""
        return self._edges(self.dag.data_edges)

    def all_edges(self) -> Iterator[tuple[int, int, EdgeKind]]:
        """Orders, then data."""
        yield from self.edges()
        yield from self.data_edges()

    def _edges(
        self, edges_to: Callable[[int], list[tuple[int, EdgeKind]]]
    ) -> Iterator[tuple[int, int, EdgeKind]]:
        for node in self.nodes:
            for source, kind in sorted(edges_to(node), key=_by_source):
                if source >= self.first:
                    yield source, node, kind


def _by_source(edge: tuple[int, EdgeKind]) -> tuple[int, int]:
    return edge[0], edge[1].value


def graph_of(window: Window, iteration: int | None = None) -> Graph:
    """The graph of a window, or of one of its iterations, counted from 1.

    Raises:
        UsageError: there is no such iteration.
    """
    first, last = (0, len(window.operations)) if iteration is None else bounds(window, iteration)
    dag = build(window)
    return Graph(
        window=window,
        dag=dag,
        first=first,
        last=last,
        iteration=iteration,
        phases=phases_of(window, first, last),
        analysis=analyse(
            dag,
            first,
            last,
            sm_count=window.device.sm_count,
            bandwidth_bytes_per_s=window.device.bandwidth_bytes_per_s,
        ),
    )
