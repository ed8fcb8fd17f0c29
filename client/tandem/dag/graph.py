"""The part of a window that is shown: operations as nodes, and the edges between them."""

from collections.abc import Iterator
from dataclasses import dataclass

from tandem._native import Analysis, Dag, EdgeKind, analyse
from tandem.dag.build import build
from tandem.dag.iterations import bounds
from tandem.dag.model import Operation, Window
from tandem.dag.phases import phases_of

Edge = tuple[int, int, EdgeKind]
_BATCH = 4096  # nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """Nodes are the window's operations from `first` to before `last`, with the same numbers."""

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
        """The operation of a node."""
        return self.window.operations[node]

    def edges(self) -> Iterator[Edge]:
        """Edges of order: source, target and kind, sorted by target, then by source."""
        return self._edges(of_data=False)

    def data_edges(self) -> Iterator[Edge]:
        """Edges between accesses to the same memory, in the same form."""
        return self._edges(of_data=True)

    def all_edges(self) -> Iterator[Edge]:
        """Edges of order, then of data."""
        yield from self.edges()
        yield from self.data_edges()

    def edge_counts(self) -> dict[EdgeKind, int]:
        """The number of edges of each kind."""
        return self.dag.count_edges(self.first, self.last)

    def _edges(self, *, of_data: bool) -> Iterator[Edge]:
        # In batches: there may be millions.
        for begin in range(self.first, self.last, _BATCH):
            end = min(begin + _BATCH, self.last)
            yield from self.dag.edges_between(begin, end, of_data=of_data, since=self.first)


def graph_of(window: Window, iteration: int | None = None) -> Graph:
    """The graph of a window, or of one of its iterations, counted from 1.

    Raises:
        UsageError: there is no such iteration, or the window is too wide for a graph.
    """
    first, last = bounds(window, iteration)
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
            held=window.held,
            periodic=iteration is not None,  # followed by an equal iteration
        ),
    )
