"""Names for operations that have none of their own."""

from tandem._native import OperationKind

NAMES = {
    OperationKind.GRAPH: "graph",
    OperationKind.MEMSET: "memset",
    OperationKind.MEMOP: "memory operation",
    OperationKind.HOST_FUNC: "host function",
    OperationKind.EVENT_RECORD: "event record",
    OperationKind.EVENT_WAIT: "event wait",
    OperationKind.SYNC_STREAM: "wait for stream",
    OperationKind.SYNC_EVENT: "wait for event",
    OperationKind.SYNC_CONTEXT: "wait for context",
    OperationKind.ALLOC: "alloc",
    OperationKind.FREE: "free",
}
# Queries that found everything done, which count as waits.
FOUND_DONE = {
    OperationKind.SYNC_STREAM: "stream found done",
    OperationKind.SYNC_EVENT: "event found done",
}
# The stand-in stream for events that concern all streams of a context.
EVENTS_OF_CONTEXT = "events of the context"


def copy_name(direction: str) -> str:
    """The name of a copy; `direction` is htod, dtoh or dtod, or empty if it is not known."""
    return f"copy {direction}".rstrip()
