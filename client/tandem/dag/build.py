"""The graph of a window: every operation becomes the node of its number."""

from tandem._native import Dag
from tandem._native import Operation as NativeOperation
from tandem.dag.model import Operation, Window


def build(window: Window) -> Dag:
    """Apply the rules of order; node i is operation i of the window."""
    dag = Dag(most_nodes=max(1, len(window.operations)))
    for _ in range(max(1, window.contexts)):
        dag.add_context()
    streams = [dag.add_stream(stream.context, stream.kind) for stream in window.streams]
    threads: dict[int, int] = {}
    current: dict[int, int] = {}
    gaps = set(window.gaps)
    for number, operation in enumerate(window.operations):
        if number in gaps:
            dag.lose()
        thread = operation.thread
        if thread not in threads:
            threads[thread] = dag.add_thread(operation.context)
        elif current[thread] != operation.context:
            dag.use_context(threads[thread], operation.context)
        current[thread] = operation.context
        accesses = [(a.address, a.bytes, a.is_const) for a in operation.accesses]
        dag.add(_native(operation, threads[thread], streams), accesses or None)
    return dag


def _native(operation: Operation, thread: int, streams: list[int]) -> NativeOperation:
    where = {} if operation.stream is None else {"stream": streams[operation.stream]}
    return NativeOperation(
        operation.kind,
        thread=thread,
        object=operation.object,
        bytes=operation.bytes,
        submitted_ns=operation.submitted_ns,
        duration_ns=operation.duration_ns,
        blocks=operation.blocks,
        flags=operation.flags,
        **where,
    )
