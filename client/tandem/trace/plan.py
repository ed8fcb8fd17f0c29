"""Turns a recording into a plan to replay on another device: operations by process and thread.

A pure function from a recording to a plan. Rules:

1. Only calls that succeeded are played: a refused call did nothing.
2. Handles become numbers, in the order of their first appearance in their process.
3. A query that answered "not yet" becomes elapsed time; one that answered "done" becomes a wait.
4. If an operation touches a stream, event or allocation that another thread touched before, its
   thread waits until that one has issued its operation. So streams keep their order and events
   their meaning.
5. What cannot be played (host functions, stream memory operations) is left out and counted.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field

from tandem._native import Allocations
from tandem.trace.file import Recording
from tandem.trace.meaning import (
    allocated_address,
    allocated_bytes,
    copied_bytes,
    direction_of,
    has_happened,
    kind_of,
    returns_when_queued,
    set_bytes,
    word,
)
from tandem.trace.records import LEGACY_STREAM, PER_THREAD_STREAM, Call

_DEFAULT_STREAMS = (LEGACY_STREAM, PER_THREAD_STREAM)
_GRAPH = "graph"
_UNNAMED = "kernel"


@dataclass(slots=True, kw_only=True)
class Operation:
    """One thing to do. Streams, events and allocations are numbered within the process."""

    kind: str  # alloc free copy set launch record wait sync_stream sync_event sync_context destroy
    gap_ns: int  # host time since the end of the previous operation in its thread
    context: int = 0
    stream: int = -1  # -1: none; a copy or set then is synchronous
    event: int = -1
    allocation: int = -1
    kernel: int = -1
    direction: str = ""  # htod, dtoh or dtod
    size_bytes: int = 0
    device_ns: int = 0
    after: list[int] = field(default_factory=list)  # ids in other threads that must be issued first
    id: int = -1  # set if another thread waits for this operation


@dataclass(slots=True, kw_only=True)
class ThreadPlan:
    """The operations of one recorded thread."""

    start_gap_ns: int  # from the first operation of all to this thread's first
    operations: list[Operation] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class ProcessPlan:
    """The plan of one recorded process."""

    pid: int
    threads: list[ThreadPlan] = field(default_factory=list)
    streams: list[tuple[int, bool]] = field(default_factory=list)  # context, non-blocking
    default_streams: dict[int, int] = field(default_factory=dict)  # stream number -> handle 1 or 2
    contexts: int = 0
    events: int = 0
    largest_copy_bytes: int = 0


@dataclass(slots=True, kw_only=True)
class Plan:
    """All that a replay does, and what it leaves out."""

    kernels: list[str]
    processes: list[ProcessPlan]
    counts: dict[str, int]  # operations by kind
    left_out: dict[str, int]  # calls that are not played, by name
    untimed_launches: int  # launches without their own measured time
    makespan_ns: int  # from the begin of the first operation to the end of the last
    kernel_ns: int  # sum over all launches

    def as_dict(self) -> dict[str, object]:
        """The plan as a dict, for JSON."""
        return asdict(self)


def make_plan(recording: Recording) -> Plan:
    """Plan the whole recording."""
    kernels = _Kernels(recording.calls)
    processes: dict[int, _Process] = {}
    left_out: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    span = _Span()
    for call in recording.calls:
        if not _is_played(call):
            if _is_missed(call):
                left_out[call.type.base] += 1
            continue
        process = processes.setdefault(call.pid, _Process(call.pid))
        operation = _operation(call, process, kernels)
        if operation is None:
            left_out[call.type.base] += 1
            continue
        span.add(call)
        process.add(call, operation, first_ns=span.start_ns)
        counts[operation.kind] += 1
    return Plan(
        kernels=kernels.names,
        processes=[p.plan for p in processes.values() if p.plan.threads],
        counts=dict(counts),
        left_out=dict(left_out),
        untimed_launches=kernels.untimed,
        makespan_ns=span.end_ns - span.start_ns,
        kernel_ns=kernels.total_ns,
    )


# Calls with neither work nor memory; older files have look-ups as a class of their own.
_IGNORED = frozenset({"capture", "context", "lookup", "mark", "pass", "query"})


def _is_played(call: Call) -> bool:
    return has_happened(call) and (call.type.group not in _IGNORED or kind_of(call) in _MAKERS)


def _is_missed(call: Call) -> bool:
    # A call that never returned may have done work; refused calls and queries are no loss.
    return call.result is None


class _Span:
    """The time from the first begin to the last end of the calls given."""

    def __init__(self) -> None:
        self.start_ns = 0
        self.end_ns = 0
        self._is_empty = True

    def add(self, call: Call) -> None:
        end_ns = call.start_ns + (call.duration_ns or 0)
        self.start_ns = call.start_ns if self._is_empty else min(self.start_ns, call.start_ns)
        self.end_ns = end_ns if self._is_empty else max(self.end_ns, end_ns)
        self._is_empty = False


class _Kernels:
    """Names of kernels, and the assumed duration of their launches."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self.names: list[str] = []
        self.untimed = 0
        self.total_ns = 0
        self._numbers: dict[str, int] = {}
        measured: dict[str, list[int]] = {}
        for call in calls:
            if call.device_ns is not None and kind_of(call) in ("launch", "graph"):
                measured.setdefault(self._name(call), []).append(call.device_ns)
        self._means = {name: sum(times) // len(times) for name, times in measured.items()}

    def number(self, call: Call) -> int:
        name = self._name(call)
        if name not in self._numbers:
            self._numbers[name] = len(self.names)
            self.names.append(name)
        return self._numbers[name]

    def device_ns(self, call: Call) -> int:
        ns = call.device_ns
        if ns is None:  # the best estimate: the mean of its name
            self.untimed += 1
            ns = self._means.get(self._name(call), 0)
        self.total_ns += ns
        return ns

    @staticmethod
    def _name(call: Call) -> str:
        if call.type.base == "cuGraphLaunch":
            return _GRAPH
        return (call.function.name if call.function else "") or _UNNAMED


class _Numbers:
    """Maps handles to numbers from 0, in order of appearance."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, ...], int] = {}
        self.count = 0

    def of(self, *handle: int) -> int:
        if handle not in self._numbers:
            self._numbers[handle] = self.count
            self.count += 1
        return self._numbers[handle]

    def knows(self, *handle: int) -> bool:
        return handle in self._numbers

    def forget(self, *handle: int) -> None:
        self._numbers.pop(handle, None)  # the driver may reuse the handle


class _Process:
    """State of a process while its calls are processed in order."""

    def __init__(self, pid: int) -> None:
        self.plan = ProcessPlan(pid=pid)
        self.contexts = _Numbers()
        self.streams = _Numbers()
        self.events = _Numbers()
        self.allocations = _Numbers()
        self.memory = Allocations()
        self._threads: dict[int, ThreadPlan] = {}
        self._ends: dict[int, int] = {}
        # (kind of object, its number) -> the thread that last touched it, and the operation
        self._last: dict[tuple[str, int], tuple[int, Operation]] = {}
        self._ids = 0

    def add(self, call: Call, operation: Operation, *, first_ns: int) -> None:
        thread = self._threads.get(call.tid)
        if thread is None:
            gap = max(0, call.start_ns - first_ns)
            thread = self._threads[call.tid] = ThreadPlan(start_gap_ns=gap)
            self.plan.threads.append(thread)
            self._ends[call.tid] = call.start_ns
        operation.gap_ns = max(0, call.start_ns - self._ends[call.tid])
        self._ends[call.tid] = call.start_ns + (call.duration_ns or 0)
        self._order(call.tid, operation)
        thread.operations.append(operation)
        plan = self.plan
        plan.contexts, plan.events = max(1, self.contexts.count), self.events.count
        if operation.kind in ("copy", "set"):
            plan.largest_copy_bytes = max(plan.largest_copy_bytes, operation.size_bytes)

    def _order(self, tid: int, operation: Operation) -> None:
        touched = (
            ("stream", operation.stream),
            ("event", operation.event),
            ("allocation", operation.allocation),
        )
        for key in touched:
            if key[1] < 0:
                continue
            last = self._last.get(key)
            if last and last[0] != tid:
                operation.after.append(self._id_of(last[1]))
            if not operation.kind.startswith("sync"):  # a host wait orders nothing that comes later
                self._last[key] = (tid, operation)

    def _id_of(self, operation: Operation) -> int:
        if operation.id < 0:
            operation.id = self._ids
            self._ids += 1
        return operation.id

    def context(self, call: Call) -> int:
        # A call needs none if its stream or event determines it; then any context will do.
        return self.contexts.of(call.context) if call.context else 0

    def is_device(self, address: int) -> bool:
        return self.memory.holding(address) is not None

    def stream(self, call: Call) -> int:
        handle = call.stream
        if handle is None:
            return -1
        if handle in _DEFAULT_STREAMS:
            # There is one legacy stream per context, and one per-thread stream per thread.
            owner = call.tid if handle == PER_THREAD_STREAM else 0
            known = self.streams.knows(handle, call.context, owner)
            number = self.streams.of(handle, call.context, owner)
            self.plan.default_streams[number] = handle
        else:
            known = self.streams.knows(handle)
            number = self.streams.of(handle)
        if not known:
            self.plan.streams.append((self.context(call), call.is_non_blocking))
        return number


_Make = Callable[[Call, _Process, _Kernels], Operation | None]


def _operation(call: Call, process: _Process, kernels: _Kernels) -> Operation | None:
    make = _MAKERS.get(kind_of(call) or "")
    operation = make(call, process, kernels) if make else None
    if operation:
        operation.context = process.context(call)
    return operation


def _alloc(call: Call, process: _Process, _kernels: _Kernels) -> Operation:
    address, size = allocated_address(call), allocated_bytes(call)
    process.allocations.forget(address)
    process.memory.add(address, size)
    number = process.allocations.of(address)
    stream = process.stream(call)
    return Operation(kind="alloc", gap_ns=0, allocation=number, stream=stream, size_bytes=size)


def _free(call: Call, process: _Process, _kernels: _Kernels) -> Operation | None:
    address = word(call, "dptr")
    if not process.allocations.knows(address):
        return None
    number = process.allocations.of(address)
    process.allocations.forget(address)
    process.memory.remove(address)
    # A free in a stream waits for nothing; one without a stream waits for the device.
    return Operation(kind="free", gap_ns=0, allocation=number, stream=process.stream(call))


def _copy(call: Call, process: _Process, _kernels: _Kernels) -> Operation:
    return Operation(
        kind="copy",
        gap_ns=0,
        stream=process.stream(call) if returns_when_queued(call) else -1,
        direction=direction_of(call, process.is_device),
        size_bytes=copied_bytes(call),
    )


def _set(call: Call, process: _Process, _kernels: _Kernels) -> Operation:
    stream = process.stream(call) if returns_when_queued(call) else -1
    return Operation(kind="set", gap_ns=0, stream=stream, size_bytes=set_bytes(call))


def _launch(call: Call, process: _Process, kernels: _Kernels) -> Operation:
    return Operation(
        kind="launch",
        gap_ns=0,
        stream=process.stream(call),
        kernel=kernels.number(call),
        device_ns=kernels.device_ns(call),
    )


def _on_event(kind: str) -> _Make:
    def make(call: Call, process: _Process, _kernels: _Kernels) -> Operation:
        event = process.events.of(word(call, "hEvent"))
        return Operation(kind=kind, gap_ns=0, event=event, stream=process.stream(call))

    return make


def _on_stream(kind: str) -> _Make:
    def make(call: Call, process: _Process, _kernels: _Kernels) -> Operation:
        operation = Operation(kind=kind, gap_ns=0, stream=process.stream(call))
        if kind == "destroy":
            process.streams.forget(call.stream or 0)
        return operation

    return make


def _context(_call: Call, _process: _Process, _kernels: _Kernels) -> Operation:
    return Operation(kind="sync_context", gap_ns=0)


# Kinds without an entry (host functions, stream memory operations) are left out and counted.
_MAKERS: dict[str, _Make] = {
    "alloc": _alloc,
    "free": _free,
    "copy": _copy,
    "set": _set,
    "launch": _launch,
    "graph": _launch,
    "record": _on_event("record"),
    "wait": _on_event("wait"),
    "sync_event": _on_event("sync_event"),
    "sync_stream": _on_stream("sync_stream"),
    "sync_context": _context,
    "destroy": _on_stream("destroy"),
}
