"""Turns each recorded call into the operation that it stands for.

1. A call becomes no node if it failed, was captured into a graph, or came before the device
   existed.
2. A query that answered "done" is a wait of the host; one that answered "not yet" is nothing.
3. Where the documentation lets a call return early, no wait is assumed: of the copies without
   "Async" only those to the host are waits (CUDA Driver API, "API synchronization behavior").
"""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache

from tandem._native import OperationKind, Signature
from tandem.dag.model import (
    HOST_WAITS,
    PROGRAMMATIC,
    UNKNOWN_ORDER,
    UNRESOLVED,
    Operation,
)
from tandem.dag.names import FOUND_DONE, NAMES, copy_name
from tandem.dag.recorded.handles import Handles
from tandem.dag.recorded.memory import Memory, copied, written
from tandem.dag.recorded.times import Times, kernel_name
from tandem.trace import meaning
from tandem.trace.file import Recording
from tandem.trace.records import Call
from tandem.trace.table import CallType

_CONFIG_ATTRIBUTES = 8  # word of a CUlaunchConfig with the number of launch attributes
_MOST_BLOCKS = 2**32 - 1
_IMPORTS = (  # no recording says whose memory it is, and where else it is mapped
    "cuIpcOpenMemHandle",
    "cuMemImportFromShareableHandle",
    "cuMemPoolImportPointer",
    "cuImportExternalMemory",
)


class Operations:
    """Makes operations of calls, which have to be given in their order."""

    def __init__(self, recording: Recording, signatures: Mapping[str, Signature]) -> None:
        self.handles = Handles(recording.processes)
        self.memory = Memory(signatures)
        self.times = Times(recording.calls)
        self.left_out: Counter[str] = Counter()
        self._shares_events: set[int] = set()  # processes that share events with others
        self._has_events_in_graphs: set[int] = set()  # processes

    def take(self, call: Call) -> Operation | None:
        """The operation of a call, or None if it is none."""
        make = _maker_of(call.type)
        if make is None or not meaning.has_happened(call):
            self._heed(call)
            return None
        operation = make(call, self)
        if operation is None:
            self.left_out[call.type.base] += 1
        return operation

    def _heed(self, call: Call) -> None:
        # Calls that are no operation, but change the meaning of later ones.
        base = call.type.base
        if base in ("cuIpcOpenEventHandle", "cuIpcGetEventHandle") and call.result == 0:
            self._shares_events.add(call.pid)
        elif base in _IMPORTS and call.result == 0:
            self.memory.importers.add(call.pid)
        elif meaning.is_event_in_graph(call):
            self._has_events_in_graphs.add(call.pid)
        elif not meaning.has_happened(call):
            return
        elif meaning.kind_of(call) == "destroy":
            self.handles.forget_stream(call)
        elif base == "cuCtxDestroy":
            self.handles.forget_context(call)

    def who(self, call: Call) -> tuple[int, int, int]:
        """The fields of every operation: thread, context and time of submission in ns."""
        return self.handles.thread(call), self.handles.context(call), call.start_ns

    def ordered_by_event(self, call: Call) -> tuple[int, int]:
        """The stream of an event's record or wait, and a flag if the order is uncertain.

        An event of a whole context follows the work in its streams, or precedes later work there,
        without ordering the streams among each other. The graph has no rule for that, so the order
        is only claimed to be possible.
        """
        if "_context" in (meaning.kind_of(call) or ""):
            return self.handles.apart(call), UNKNOWN_ORDER
        return self.handles.stream_or_default(call), 0

    def order_flags(self, call: Call) -> int:
        """The flag of a wait: its event may have been recorded by another process."""
        return UNKNOWN_ORDER if call.pid in self._shares_events else 0

    def graph_flags(self, call: Call) -> int:
        """The flag of a graph: it may record events, or wait for some."""
        return UNKNOWN_ORDER if call.pid in self._has_events_in_graphs else 0


def _launch(call: Call, known: Operations) -> Operation | None:
    if "MultiDevice" in call.type.name:  # the recording does not say in which streams
        return None
    name = kernel_name(call)
    duration_ns, flags = known.times.of(call, name)
    if meaning.word(call, "config", skip=_CONFIG_ATTRIBUTES) and call.device_ns is None:
        flags |= PROGRAMMATIC  # an attribute may say so, and such launches are not timed
    accesses, unresolved = known.memory.touched(call)
    return Operation(  # positional for speed: most operations are launches
        OperationKind.LAUNCH,
        name,
        *known.who(call),
        known.handles.stream_or_default(call),
        duration_ns,
        meaning.word(call, "f"),
        0,
        min(meaning.blocks_of(call), _MOST_BLOCKS),
        flags | unresolved,
        accesses,
    )


def _graph(call: Call, known: Operations) -> Operation:
    name = kernel_name(call)
    duration_ns, flags = known.times.of(call, name)
    return Operation(
        OperationKind.GRAPH,
        name,
        *known.who(call),
        stream=known.handles.stream_or_default(call),
        object=meaning.word(call, "hGraph"),
        duration_ns=duration_ns,
        flags=flags | UNRESOLVED | known.graph_flags(call),
    )


def _copy(call: Call, known: Operations) -> Operation:
    direction = meaning.direction_of(call, lambda a: known.memory.is_device(call, a))
    # The direction of cuMemcpy follows only from its addresses, not all of which are known.
    is_sure = direction == "dtoh" and call.type.base != "cuMemcpy"
    waits = is_sure and not meaning.returns_when_queued(call)
    accesses = known.memory.told(call, copied(call))
    return Operation(
        OperationKind.COPY,
        copy_name(direction),
        *known.who(call),
        stream=known.handles.stream_or_default(call),
        object=meaning.word(call, "dstDevice") or meaning.word(call, "dst"),
        bytes=meaning.copied_bytes(call),
        duration_ns=call.device_ns or 0,
        flags=(HOST_WAITS if waits else 0) | (0 if accesses else UNRESOLVED),
        accesses=accesses,
    )


def _set(call: Call, known: Operations) -> Operation:
    accesses = known.memory.told(call, written(call))
    return Operation(
        OperationKind.MEMSET,
        NAMES[OperationKind.MEMSET],
        *known.who(call),
        stream=known.handles.stream_or_default(call),
        object=meaning.word(call, "dstDevice"),
        bytes=meaning.set_bytes(call),
        duration_ns=call.device_ns or 0,
        flags=0 if accesses else UNRESOLVED,
        accesses=accesses,
    )


def _prefetch(call: Call, known: Operations) -> Operation:
    return Operation(
        OperationKind.COPY,
        "prefetch",
        *known.who(call),
        stream=known.handles.stream_or_default(call),
        object=meaning.word(call, "devPtr"),
        bytes=meaning.word(call, "count") if "Batch" not in call.type.name else 0,
        flags=UNRESOLVED,
    )


def _other_copy(call: Call, known: Operations) -> Operation:
    return Operation(
        OperationKind.COPY,
        call.type.base.removeprefix("cu"),
        *known.who(call),
        stream=known.handles.stream_or_default(call),
        duration_ns=call.device_ns or 0,
        flags=UNRESOLVED,
    )


def _memop(call: Call, known: Operations) -> Operation:
    does = "write" if "Write" in call.type.base else "wait for"
    if call.type.base.startswith("cuSignal"):
        does = "signal"
    what = "semaphore" if "Semaphore" in call.type.base else "value"
    return Operation(
        OperationKind.MEMOP,
        f"{does} {what}",
        *known.who(call),
        stream=known.handles.stream_or_default(call),
        object=meaning.word(call, "addr"),
        flags=UNKNOWN_ORDER if does == "wait for" else 0,  # nobody knows who writes the value
    )


def _host(call: Call, known: Operations) -> Operation:
    return Operation(
        OperationKind.HOST_FUNC,
        NAMES[OperationKind.HOST_FUNC],
        *known.who(call),
        stream=known.handles.stream_or_default(call),
        object=meaning.word(call, "fn") or meaning.word(call, "callback"),
        flags=UNRESOLVED,
    )


def _alloc(call: Call, known: Operations) -> Operation:
    known.memory.add(call)
    return Operation(
        OperationKind.ALLOC,
        NAMES[OperationKind.ALLOC],
        *known.who(call),
        stream=known.handles.stream(call),
        object=meaning.allocated_address(call),
        bytes=meaning.allocated_bytes(call),
    )


def _free(call: Call, known: Operations) -> Operation:
    return Operation(
        OperationKind.FREE,
        NAMES[OperationKind.FREE],
        *known.who(call),
        stream=known.handles.stream(call),
        object=meaning.word(call, "dptr"),
        bytes=known.memory.remove(call),
    )


def _record(call: Call, known: Operations) -> Operation:
    stream, flags = known.ordered_by_event(call)
    return Operation(
        OperationKind.EVENT_RECORD,
        NAMES[OperationKind.EVENT_RECORD],
        *known.who(call),
        stream=stream,
        object=known.handles.event(call),
        flags=flags,
    )


def _wait(call: Call, known: Operations) -> Operation:
    stream, flags = known.ordered_by_event(call)
    return Operation(
        OperationKind.EVENT_WAIT,
        NAMES[OperationKind.EVENT_WAIT],
        *known.who(call),
        stream=stream,
        object=known.handles.event(call),
        flags=flags | known.order_flags(call),
    )


def _sync_stream(call: Call, known: Operations) -> Operation:
    stream = known.handles.stream_or_default(call)
    return _host_waits(call, known, OperationKind.SYNC_STREAM, stream=stream)


def _sync_event(call: Call, known: Operations) -> Operation:
    event, flags = known.handles.event(call), known.order_flags(call)
    return _host_waits(call, known, OperationKind.SYNC_EVENT, event=event, flags=flags)


def _sync_context(call: Call, known: Operations) -> Operation:
    return _host_waits(call, known, OperationKind.SYNC_CONTEXT)


def _host_waits(
    call: Call,
    known: Operations,
    kind: OperationKind,
    *,
    stream: int | None = None,
    event: int = 0,
    flags: int = 0,
) -> Operation:
    name = FOUND_DONE[kind] if "Query" in call.type.base else NAMES[kind]
    return Operation(
        kind,
        name,
        *known.who(call),
        stream=stream,
        object=event,
        flags=flags,
        duration_ns=call.duration_ns or 0,
    )


_Make = Callable[[Call, Operations], Operation | None]

_MAKERS: dict[str, _Make] = {  # keyed by meaning.kind_of
    "alloc": _alloc,
    "free": _free,
    "copy": _copy,
    "prefetch": _prefetch,
    "set": _set,
    "launch": _launch,
    "graph": _graph,
    "memop": _memop,
    "host": _host,
    "record": _record,
    "record_context": _record,
    "wait": _wait,
    "wait_context": _wait,
    "sync_stream": _sync_stream,
    "sync_event": _sync_event,
    "sync_context": _sync_context,
}
_OTHERS: dict[str, _Make] = {"copy": _other_copy}  # keyed by the class in calls.def


@cache
def _maker_of(called: CallType) -> _Make | None:
    return _MAKERS.get(meaning.kind_of_type(called) or "") or _OTHERS.get(called.group)
