"""What recorded calls do: the only module that knows calls by name.

Replays and graphs use the same table, so they agree on the meaning of a recording.
"""

from collections.abc import Callable
from functools import cache
from math import prod

from tandem.trace.lines import bytes_of
from tandem.trace.records import Call
from tandem.trace.table import CallType

_MOST_BYTES = 2**64 - 1
_HOST_MEMORY = 1  # CU_MEMORYTYPE_HOST

# By prefix of the call's name; the first match counts.
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
    """What the call does; None if it neither works nor waits nor orders."""
    return kind_of_type(call.type)


@cache
def kind_of_type(called: CallType) -> str | None:
    """What all calls of a type do, as `kind_of`."""
    return next((kind for prefix, kind in _KINDS if called.base.startswith(prefix)), None)


def has_happened(call: Call) -> bool:
    """Whether the device got something to do: not refused, answered "not yet" or captured."""
    return call.result == 0 and not call.has_host_time and not call.is_captured


def is_event_in_graph(call: Call) -> bool:
    """Whether the call added a graph node that records an event or waits for one at every run."""
    # CU_EVENT_RECORD_EXTERNAL, CU_EVENT_WAIT_EXTERNAL; other events only order the graph's nodes.
    is_external = word(call, "flags") == 1 or word(call, "Flags") == 1
    return (
        call.is_captured
        and call.result == 0
        and is_external
        and kind_of(call) in ("record", "wait")
    )


def returns_when_queued(call: Call) -> bool:
    """Whether a copy or memset may still be running when the call returns."""
    return "Async" in call.type.name


def word(call: Call, name: str, *, skip: int = 0) -> int:
    """The word of a parameter, or the one `skip` words after it; 0 if there is none."""
    place = call.type.places.get(name)
    return 0 if place is None or place + skip >= len(call.words) else call.words[place + skip]


def named_context(call: Call) -> int:
    """The context that the call names; 0 if it names none."""
    return next((call.words[place] for place in _contexts_of(call.type)), 0)


@cache
def _contexts_of(called: CallType) -> tuple[int, ...]:
    return tuple(called.places[name] for name in ("ctx", "hCtx") if name in called.places)


def allocated_address(call: Call) -> int:
    """The address that the driver returned."""
    return word(call, "dptr", skip=1)


def allocated_bytes(call: Call) -> int:
    """The bytes that were asked for; for pitched memory without the padding."""
    size = bytes_of(call)
    return _times(word(call, "WidthInBytes"), word(call, "Height")) if size is None else size


def reserved_bytes(call: Call) -> int:
    """The bytes that an allocation takes; for pitched memory with the padding."""
    return _times(word(call, "pPitch", skip=1), word(call, "Height")) or allocated_bytes(call)


def copied_bytes(call: Call) -> int:
    """The bytes that a copy moves; 0 if the recording does not say."""
    size = bytes_of(call)
    if size is not None:
        return size
    if call.type.base.startswith("cuMemcpy3D"):
        return _times(*(word(call, "pCopy", skip=s) for s in (13, 14, 15)))
    return _times(word(call, "pCopy", skip=15), word(call, "pCopy", skip=16))


def set_bytes(call: Call) -> int:
    """The bytes that a memset writes."""
    element = 4 if "D32" in call.type.name else 2 if "D16" in call.type.name else 1
    return _times(element, word(call, "N") or _times(word(call, "Width"), word(call, "Height")))


def _times(*factors: int) -> int:
    # At most as many bytes as a call can name: a damaged recording may give more.
    return min(prod(factors), _MOST_BYTES)


def direction_of(call: Call, is_device: Callable[[int], bool]) -> str:
    """The direction of a copy: htod, dtoh or dtod; `is_device` recognizes device addresses."""
    base = call.type.base
    for name in ("HtoD", "DtoH", "HtoA", "AtoH"):
        if name in base:
            return name.replace("A", "D").lower()
    from_host = to_host = False
    if base in ("cuMemcpy", "cuMemcpyAsync"):  # the addresses tell
        from_host = not is_device(word(call, "src"))
        to_host = not is_device(word(call, "dst"))
    elif base.startswith(("cuMemcpy2D", "cuMemcpy3D")) and "Peer" not in base:
        # The memory types tell; those of a copy between peers are not recorded.
        from_host = word(call, "pCopy", skip=1) == _HOST_MEMORY
        to_host = word(call, "pCopy", skip=7 if "3D" in base else 8) == _HOST_MEMORY
    return "htod" if from_host else "dtoh" if to_host else "dtod"


def blocks_of(call: Call) -> int:
    """The number of blocks of a launch; 1 if the recording does not say."""
    blocks = 1
    for place in _sides_of(call.type):
        blocks *= (call.words[place] if place < len(call.words) else 0) or 1
    return blocks


@cache
def _sides_of(called: CallType) -> tuple[int, ...]:
    # The places of the words with the grid dimensions that the call has.
    if called.base == "cuLaunchKernelEx":
        begin = called.places.get("config")
        return () if begin is None else (begin + 1, begin + 2, begin + 3)
    names = ("gridDimX", "gridDimY", "gridDimZ", "grid_width", "grid_height")
    return tuple(called.places[name] for name in names if name in called.places)
