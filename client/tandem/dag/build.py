"""The graph of a window: every operation becomes the node of its number."""

from tandem._native import Dag, OperationKind
from tandem._native import Operation as NativeOperation
from tandem.dag.model import Operation, Window

_ADDRESS_BITS = 57  # of virtual memory (Intel 64 and IA-32 manual, volume 3, 5-level paging)
_OF_MEMORY = (OperationKind.ALLOC, OperationKind.FREE, OperationKind.MEMSET)


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
        process = window.threads[thread].process
        accesses = [(_address(a.address, process), a.bytes, a.is_const) for a in operation.accesses]
        object_ = operation.object
        if operation.kind in _OF_MEMORY:
            object_ = _address(object_, process)
        native = _native(operation, threads[thread], streams, object_)
        dag.add(native, accesses or None)
    return dag


def _address(address: int, process: int) -> int:
    # Processes have the same addresses for different memory.
    return (address + (process << _ADDRESS_BITS)) % 2**64


def _native(operation: Operation, thread: int, streams: list[int], object_: int) -> NativeOperation:
    where = {} if operation.stream is None else {"stream": streams[operation.stream]}
    return NativeOperation(
        operation.kind,
        thread=thread,
        object=object_,
        bytes=operation.bytes,
        submitted_ns=operation.submitted_ns,
        duration_ns=operation.duration_ns,
        blocks=operation.blocks,
        flags=operation.flags,
        **where,
    )
