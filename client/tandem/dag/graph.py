"""The part of a window that is shown: its operations as nodes, and the edges between them."""

from collections.abc import Iterator
from dataclasses import dataclass

from tandem._native import Dag, EdgeKind
from tandem.dag.build import build
from tandem.dag.iterations import bounds
from tandem.dag.model import Operation, Window


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """Nodes are the operations `first` to before `last` of the window, under those numbers."""

    window: Window
    dag: Dag
    first: int
    last: int
    iteration: int | None  # None: the whole window

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
        """From, to and why, by the node they lead to, then by the one they come from."""
        for node in self.nodes:
            for source, kind in sorted(self.dag.edges(node), key=_by_source):
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
    return Graph(window=window, dag=build(window), first=first, last=last, iteration=iteration)
