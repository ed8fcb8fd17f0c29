"""Builds the graph of a window; operation i becomes node i."""

from tandem._native import Dag, add_all
from tandem.dag.limits import refuse_too_wide
from tandem.dag.model import Window


def build(window: Window) -> Dag:
    """Apply the ordering rules; node i is operation i of the window.

    Raises:
        UsageError: the window has more streams, threads or contexts than a graph supports.
    """
    refuse_too_wide(window)
    dag = Dag(most_nodes=max(1, len(window.operations)))
    for _ in range(max(1, window.contexts)):
        dag.add_context()
    add_all(
        dag,
        window.operations,
        streams=[dag.add_stream(stream.context, stream.kind) for stream in window.streams],
        processes=[thread.process for thread in window.threads],
        gaps=set(window.gaps),
    )
    return dag
