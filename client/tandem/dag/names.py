"""What operations are called that have no name of their own."""

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
# Waits that only asked, and were told that there is nothing to wait for.
FOUND_DONE = {
    OperationKind.SYNC_STREAM: "stream found done",
    OperationKind.SYNC_EVENT: "event found done",
}
# The stream that events of all streams of a context are shown in.
EVENTS_OF_CONTEXT = "events of the context"


def copy_name(direction: str) -> str:
    """Of a copy: `direction` is htod, dtoh or dtod, or nothing where it is not known."""
    return f"copy {direction}".rstrip()
