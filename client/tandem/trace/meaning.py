"""What a recorded call does: the one place that knows calls by name.

Replays and graphs read the same table, so they agree on what a recording says.
"""

from collections.abc import Callable
from functools import cache
from math import prod

from tandem.trace.lines import bytes_of
from tandem.trace.records import Call
from tandem.trace.table import CallType

_MOST_BYTES = 2**64 - 1
_HOST_MEMORY = 1  # CU_MEMORYTYPE_HOST

# By the beginning of the call's name; the first that fits.
_KINDS = (
    ("cuMemAlloc", "alloc"),
    ("cuMemFree", "free"),
    ("cuMemcpy", "copy"),
    ("cuMemPrefetch", "prefetch"),
    ("cuMemDiscardAndPrefetch", "prefetch"),
    ("cuMemset", "set"),
    ("cuLaunchHostFunc", "host"),
    ("cuStreamAddCallback", "host"),
    ("cuLaunch", "launch"),
    ("cuGraphLaunch", "graph"),
    ("cuEventRecord", "record"),
    ("cuCtxRecordEvent", "record_context"),
    ("cuStreamWaitEvent", "wait"),
    ("cuCtxWaitEvent", "wait_context"),
    ("cuGreenCtxRecordEvent", "record_context"),
    ("cuGreenCtxWaitEvent", "wait_context"),
    ("cuStreamWaitValue", "memop"),
    ("cuStreamWriteValue", "memop"),
    ("cuStreamBatchMemOp", "memop"),
    ("cuSignalExternalSemaphores", "memop"),
    ("cuWaitExternalSemaphores", "memop"),
    ("cuEventSynchronize", "sync_event"),
    ("cuEventQuery", "sync_event"),
    ("cuStreamSynchronize", "sync_stream"),
    ("cuStreamQuery", "sync_stream"),
    ("cuCtxSynchronize", "sync_context"),
    ("cuStreamDestroy", "destroy"),
    ("tandem_mark", "mark"),
)


def kind_of(call: Call) -> str | None:
    """What the call does; None where it neither works nor waits nor orders."""
    return kind_of_type(call.type)


@cache
def kind_of_type(called: CallType) -> str | None:
    """The same of all calls of a type."""
    return next((kind for prefix, kind in _KINDS if called.base.startswith(prefix)), None)


def has_happened(call: Call) -> bool:
    """Whether the device was asked for something: not refused, not "not yet", not captured."""
    return call.result == 0 and not call.has_host_time and not call.is_captured


def is_event_in_graph(call: Call) -> bool:
    """Whether a graph now has a node that records an event or waits for one, each time it runs."""
    # CU_EVENT_RECORD_EXTERNAL, CU_EVENT_WAIT_EXTERNAL: others order the nodes of the graph alone.
    is_external = word(call, "flags") == 1 or word(call, "Flags") == 1
    return (
        call.is_captured
        and call.result == 0
        and is_external
        and kind_of(call) in ("record", "wait")
    )


def returns_when_queued(call: Call) -> bool:
    """Whether a copy or set may still go on after it."""
    return "Async" in call.type.name


def word(call: Call, name: str, *, skip: int = 0) -> int:
    """The word of a parameter, or one of those after it; 0 where there is none."""
    place = call.type.places.get(name)
    return 0 if place is None or place + skip >= len(call.words) else call.words[place + skip]


def named_context(call: Call) -> int:
    """The context that the call names; 0 where it names none."""
    return next((call.words[place] for place in _contexts_of(call.type)), 0)


@cache
def _contexts_of(called: CallType) -> tuple[int, ...]:
    return tuple(called.places[name] for name in ("ctx", "hCtx") if name in called.places)


def allocated_address(call: Call) -> int:
    """What the driver answered."""
    return word(call, "dptr", skip=1)


def allocated_bytes(call: Call) -> int:
    """What was asked for; of pitched memory without the padding."""
    size = bytes_of(call)
    return _times(word(call, "WidthInBytes"), word(call, "Height")) if size is None else size


def reserved_bytes(call: Call) -> int:
    """How much an allocation takes; of pitched memory with the padding."""
    return _times(word(call, "pPitch", skip=1), word(call, "Height")) or allocated_bytes(call)


def copied_bytes(call: Call) -> int:
    """How much a copy moves; 0 where the recording does not say."""
    size = bytes_of(call)
    if size is not None:
        return size
    if call.type.base.startswith("cuMemcpy3D"):
        return _times(*(word(call, "pCopy", skip=s) for s in (13, 14, 15)))
    return _times(word(call, "pCopy", skip=15), word(call, "pCopy", skip=16))


def set_bytes(call: Call) -> int:
    """How much a memset writes."""
    element = 4 if "D32" in call.type.name else 2 if "D16" in call.type.name else 1
    return _times(element, word(call, "N") or _times(word(call, "Width"), word(call, "Height")))


def _times(*factors: int) -> int:
    # As many bytes as a call can name: in a damaged recording the product may be more.
    return min(prod(factors), _MOST_BYTES)


def direction_of(call: Call, is_device: Callable[[int], bool]) -> str:
    """Of a copy: htod, dtoh or dtod; `is_device` knows the addresses of the device."""
    base = call.type.base
    for name in ("HtoD", "DtoH", "HtoA", "AtoH"):
        if name in base:
            return name.replace("A", "D").lower()
    from_host = to_host = False
    if base in ("cuMemcpy", "cuMemcpyAsync"):  # the addresses say it
        from_host = not is_device(word(call, "src"))
        to_host = not is_device(word(call, "dst"))
    elif base.startswith(("cuMemcpy2D", "cuMemcpy3D")) and "Peer" not in base:
        # The memory types say it; those of a copy between peers are not recorded.
        from_host = word(call, "pCopy", skip=1) == _HOST_MEMORY
        to_host = word(call, "pCopy", skip=7 if "3D" in base else 8) == _HOST_MEMORY
    return "htod" if from_host else "dtoh" if to_host else "dtod"


def blocks_of(call: Call) -> int:
    """How many blocks a launch has; 1 where the recording does not say."""
    blocks = 1
    for place in _sides_of(call.type):
        blocks *= (call.words[place] if place < len(call.words) else 0) or 1
    return blocks


@cache
def _sides_of(called: CallType) -> tuple[int, ...]:
    # The words with the sides of the grid, of those that the call has.
    if called.base == "cuLaunchKernelEx":
        begin = called.places.get("config")
        return () if begin is None else (begin + 1, begin + 2, begin + 3)
    names = ("gridDimX", "gridDimY", "gridDimZ", "grid_width", "grid_height")
    return tuple(called.places[name] for name in names if name in called.places)
