"""From a recording of `tandem trace calls` to the window of a graph.

1. A call that failed, was captured into a graph, or came before the device was there is no node.
2. A query that said "done" is a wait of the host; one that said "not yet" is nothing.
3. Handles are numbers of their process: the same stream or event again is the same number, until
   the stream is destroyed. The legacy stream is one a context, the per-thread one one a thread.
4. Where the documentation lets a call return early, nobody is said to have waited: of the copies
   without "Async" only those to the host are waits (CUDA Driver API, "API synchronization
   behavior").
5. A launch uses every allocation that a word of its parameters points into, whole, and only reads
   it where the kernel's name, or what is declared of it, says so. Those are all if the rule in
   csrc/core/dag/parameters.h says it and no call is missing before; else there may be more.
   Global variables, textures and surfaces are in no recording. Copies and memsets use just what
   they name.
6. Marks of the program are those of the process that launches most. An iteration ends with each
   that says so; the first one begins with the recording.
7. Calls are numbered as they begin, so a number that is missing is a call that was not recorded.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType

from tandem._native import Allocations, OperationKind, Signature, StreamKind
from tandem.dag.iterations import busiest_thread
from tandem.dag.model import (
    ESTIMATED,
    HOST_WAITS,
    PROGRAMMATIC,
    STEP,
    UNKNOWN_ORDER,
    UNRESOLVED,
    Access,
    Mark,
    Operation,
    Process,
    Stream,
    Thread,
    Unknown,
    Window,
)
from tandem.dag.signatures import parse
from tandem.errors import UsageError
from tandem.trace import meaning
from tandem.trace.file import Recording
from tandem.trace.lines import bytes_of
from tandem.trace.records import LEGACY_STREAM, PER_THREAD_STREAM, Call, Device

_CONFIG_ATTRIBUTES = 8  # of a CUlaunchConfig, by words: how many attributes a launch has


@dataclass(slots=True, kw_only=True)
class _Node:
    """What a kind of call gives an operation beyond whose it is."""

    kind: OperationKind
    name: str
    stream: int | None = None
    object: int = 0
    bytes: int = 0
    blocks: int = 0
    flags: int = 0
    duration_ns: int = 0
    accesses: tuple[Access, ...] = ()


def from_trace(
    recording: Recording, source: str, signatures: Mapping[str, str] = MappingProxyType({})
) -> Window:
    """Everything in the recording.

    `source` is what to call it, `signatures` are C parameter lists of kernels by name.

    Raises:
        UsageError: a signature is no parameter list, or does not fit its kernel.
    """
    reader = _Reader(recording, parse(signatures))
    operations: list[Operation] = []
    gaps: list[int] = []
    marks: list[tuple[int, Mark]] = []  # with the process
    expected = 1
    for call in recording.calls:
        if call.number > expected:
            gaps.append(len(operations))
            reader.is_sure = False
        expected = call.number + 1
        if meaning.kind_of(call) == "mark":
            marks.append((reader.process(call.pid), _mark(call, len(operations))))
        operation = reader.operation(call)
        if operation is not None:
            operations.append(operation)
    main = _main_process(operations, reader.threads)
    told = tuple(mark for process, mark in marks if process == main)
    ends = [mark.place for mark in told if mark.kind == STEP]
    return Window(
        source=source,
        processes=tuple(reader.processes),
        contexts=reader.context_count,
        streams=tuple(reader.streams),
        threads=tuple(reader.threads),
        operations=tuple(operations),
        gaps=tuple(gaps),
        iterations=tuple((begin, end) for begin, end in pairwise([0, *ends]) if begin < end),
        is_marked=bool(ends),
        marks=told,
        device=_one_device(recording),
        unknown=Unknown(
            lost_calls=recording.lost,
            left_out=dict(reader.left_out),
            is_cut_short=not recording.is_complete,
        ),
    )


def _main_process(operations: Sequence[Operation], threads: Sequence[Thread]) -> int | None:
    thread = busiest_thread(operations)
    return None if thread is None else threads[thread].process


def _mark(call: Call, place: int) -> Mark:
    return Mark(place=place, kind=meaning.word(call, "kind"), object=meaning.word(call, "id"))


def _one_device(recording: Recording) -> Device:
    # Calls do not say where they are made, so of different devices nothing is said.
    return recording.devices[0] if len(recording.devices) == 1 else Device()


class _Reader:
    """What is known while calls go by; gives numbers to handles."""

    def __init__(self, recording: Recording, signatures: Mapping[str, Signature]) -> None:
        self.signatures = signatures
        self.processes: list[Process] = []
        self.streams: list[Stream] = []
        self.threads: list[Thread] = []
        self.contexts: dict[tuple[int, int], int] = {}
        self.context_count = 0
        self.left_out: Counter[str] = Counter()
        self.means = _means(recording.calls)
        self.allocations: defaultdict[int, Allocations] = defaultdict(Allocations)  # by pid
        self._names = {process.pid: process.name for process in recording.processes}
        self._processes: dict[int, int] = {}
        self._threads: dict[tuple[int, int], int] = {}
        self._streams: dict[tuple[int, ...], int] = {}
        self._events: dict[tuple[int, int], int] = {}
        self._shares_events: set[int] = set()  # processes that opened events of others
        self.is_sure = True  # no call is missing, so what is allocated is known

    def operation(self, call: Call) -> Operation | None:
        """The node of a call, if it is one."""
        if call.type.base == "cuIpcOpenEventHandle" and call.result == 0:
            self._shares_events.add(call.pid)
        if not meaning.has_happened(call):
            return None
        kind = meaning.kind_of(call)
        self._forget(call, kind)
        make = _MAKERS.get(kind or "") or _OTHERS.get(call.type.group)
        if make is None:
            return None
        node = make(call, self)
        if node is None:
            self.left_out[call.type.base] += 1
            return None
        return Operation(
            kind=node.kind,
            name=node.name,
            thread=self._thread(call),
            context=self.context(call),
            stream=node.stream,
            submitted_ns=call.start_ns,
            duration_ns=node.duration_ns,
            object=node.object,
            bytes=node.bytes,
            blocks=node.blocks,
            flags=node.flags,
            accesses=node.accesses,
        )

    def _forget(self, call: Call, kind: str | None) -> None:
        # The driver may give the handle to another one.
        if kind == "destroy":
            self._streams.pop((call.pid, call.stream or 0), None)
        elif call.type.base == "cuCtxDestroy":
            number = self.contexts.pop((call.pid, meaning.word(call, "ctx")), None)
            gone = [k for k, s in self._streams.items() if self.streams[s].context == number]
            for key in gone:
                del self._streams[key]

    def process(self, pid: int) -> int:
        if pid not in self._processes:
            self._processes[pid] = len(self.processes)
            self.processes.append(Process(pid=pid, name=self._names.get(pid, "")))
        return self._processes[pid]

    def context(self, call: Call) -> int:
        handle = meaning.word(call, "ctx") or meaning.word(call, "hCtx") or call.context
        key = (call.pid, handle)
        if key not in self.contexts:
            self.contexts[key] = self.context_count
            self.context_count += 1
        return self.contexts[key]

    def stream(self, call: Call) -> int | None:
        """The stream that a call names, if it does."""
        return None if call.stream is None else self._of_handle(call.stream, call)

    def stream_or_default(self, call: Call) -> int:
        """The stream of a call that works in the default stream where it names none."""
        own = call.type.name.endswith(("_ptds", "_ptsz"))
        default = PER_THREAD_STREAM if own else LEGACY_STREAM
        return self._of_handle(call.stream or default, call)

    def _of_handle(self, handle: int, call: Call) -> int:
        if handle == LEGACY_STREAM:
            return self.legacy(call)
        owner = (call.context, call.tid) if handle == PER_THREAD_STREAM else ()
        kind = StreamKind.NON_BLOCKING if call.is_non_blocking else StreamKind.BLOCKING
        return self._stream((call.pid, handle, *owner), call, kind)

    def legacy(self, call: Call) -> int:
        """The legacy stream of the call's context."""
        key = (call.pid, LEGACY_STREAM, self.context(call))
        return self._stream(key, call, StreamKind.LEGACY)

    def _stream(self, key: tuple[int, ...], call: Call, kind: StreamKind) -> int:
        if key not in self._streams:
            process = self.process(call.pid)
            self._streams[key] = len(self.streams)
            context = self.context(call)
            name = self._name(process, kind, is_own=key[1] == PER_THREAD_STREAM, tid=call.tid)
            self.streams.append(Stream(process=process, context=context, kind=kind, name=name))
        return self._streams[key]

    def _name(self, process: int, kind: StreamKind, *, is_own: bool, tid: int) -> str:
        if kind is StreamKind.LEGACY:
            return "legacy stream"
        if is_own:
            return f"default stream of thread {tid}"
        numbered = sum(s.process == process and s.name.startswith("stream ") for s in self.streams)
        return f"stream {numbered + 1}"

    def _thread(self, call: Call) -> int:
        key = (call.pid, call.tid)
        if key not in self._threads:
            self._threads[key] = len(self.threads)
            self.threads.append(Thread(process=self.process(call.pid), tid=call.tid))
        return self._threads[key]

    def event(self, call: Call) -> int:
        key = (call.pid, meaning.word(call, "hEvent"))
        return self._events.setdefault(key, len(self._events) + 1)

    def order_flags(self, call: Call) -> int:
        """Of a wait: an event of another process may have been recorded there."""
        return UNKNOWN_ORDER if call.pid in self._shares_events else 0

    def touched(self, call: Call) -> tuple[tuple[Access, ...], int]:
        """What a launch may use, and the flag of what else is not known."""
        function = call.function
        found, is_all = self.allocations[call.pid].touched_by(
            function.name if function else "",
            function.parameters if function else (),
            call.words[call.type.words :],
            is_cut=call.is_cut,
            declared=self._declared(call),
        )
        accesses = tuple(Access(address=a, bytes=b, is_const=c) for a, b, c in found)
        # A kernel that was given no memory at all does its work somewhere unseen.
        is_all &= bool(accesses) and self.is_sure
        return accesses, 0 if is_all else UNRESOLVED

    def _declared(self, call: Call) -> Signature | None:
        found = self.signatures.get(call.function.name) if call.function else None
        if found and call.function and not call.is_cut:
            try:
                found.check(call.function.name, call.function.parameters)
            except ValueError as exc:
                raise UsageError(f"{exc}; correct its signature") from exc
        return found

    def is_device(self, call: Call) -> Callable[[int], bool]:
        allocations = self.allocations[call.pid]
        return lambda address: allocations.holding(address) is not None


def _means(calls: Sequence[Call]) -> dict[str, int]:
    # The mean time of each kernel that was timed at all.
    times: dict[str, list[int]] = {}
    for call in calls:
        if call.device_ns is not None and meaning.kind_of(call) in ("launch", "graph"):
            times.setdefault(_kernel(call), []).append(call.device_ns)
    return {name: sum(found) // len(found) for name, found in times.items()}


def _kernel(call: Call) -> str:
    if call.type.base == "cuGraphLaunch":
        return f"graph {meaning.word(call, 'hGraph'):#x}"
    return (call.function.name if call.function else "") or "unnamed kernel"


def _timed(call: Call, reader: _Reader) -> tuple[int, int]:
    # How long it lasts on the GPU, and the flag of what is not measured.
    if call.device_ns is not None:
        return call.device_ns, 0
    mean = reader.means.get(_kernel(call), 0)
    return mean, ESTIMATED if mean else 0


def _launch(call: Call, reader: _Reader) -> _Node | None:
    if "MultiDevice" in call.type.name:  # the recording does not say in which streams
        return None
    ns, flags = _timed(call, reader)
    if meaning.word(call, "config", skip=_CONFIG_ATTRIBUTES):
        flags |= PROGRAMMATIC  # one of them may say so
    accesses, unresolved = reader.touched(call)
    return _Node(
        kind=OperationKind.LAUNCH,
        name=_kernel(call),
        stream=reader.stream_or_default(call),
        object=meaning.word(call, "f"),
        blocks=min(meaning.blocks_of(call), 2**32 - 1),
        duration_ns=ns,
        flags=flags | unresolved,
        accesses=accesses,
    )


def _graph(call: Call, reader: _Reader) -> _Node:
    ns, flags = _timed(call, reader)
    return _Node(
        kind=OperationKind.GRAPH,
        name=_kernel(call),
        stream=reader.stream_or_default(call),
        object=meaning.word(call, "hGraph"),
        duration_ns=ns,
        flags=flags | UNRESOLVED,
    )


def _copy(call: Call, reader: _Reader) -> _Node:
    direction = meaning.direction_of(call, reader.is_device(call))
    # Of cuMemcpy only the addresses tell, and not all of them are known.
    is_sure = direction == "dtoh" and call.type.base != "cuMemcpy"
    waits = is_sure and not meaning.returns_when_queued(call)
    accesses = _copied(call)
    return _Node(
        kind=OperationKind.COPY,
        name=f"copy {direction}",
        stream=reader.stream_or_default(call),
        object=meaning.word(call, "dstDevice") or meaning.word(call, "dst"),
        bytes=meaning.copied_bytes(call),
        duration_ns=call.device_ns or 0,
        flags=(HOST_WAITS if waits else 0) | (0 if accesses else UNRESOLVED),
        accesses=accesses,
    )


def _copied(call: Call) -> tuple[Access, ...]:
    # Of one piece to another; nothing where rows, arrays or several pieces are copied.
    size = bytes_of(call)
    target = _first_word(call, "dstDevice", "dstHost", "dst")
    source = _first_word(call, "srcDevice", "srcHost", "src")
    if not (size and target and source):
        return ()
    return (
        Access(address=source, bytes=size, is_const=True),
        Access(address=target, bytes=size, is_const=False),
    )


def _first_word(call: Call, *names: str) -> int:
    return next((found for name in names if (found := meaning.word(call, name))), 0)


def _set(call: Call, reader: _Reader) -> _Node:
    return _Node(
        kind=OperationKind.MEMSET,
        name="memset",
        stream=reader.stream_or_default(call),
        object=meaning.word(call, "dstDevice"),
        bytes=meaning.set_bytes(call),
        duration_ns=call.device_ns or 0,
    )


def _prefetch(call: Call, reader: _Reader) -> _Node:
    return _Node(
        kind=OperationKind.COPY,
        name="prefetch",
        stream=reader.stream_or_default(call),
        object=meaning.word(call, "devPtr"),
        bytes=meaning.word(call, "count") if "Batch" not in call.type.name else 0,
        flags=UNRESOLVED,
    )


def _other_copy(call: Call, reader: _Reader) -> _Node:
    name = call.type.base.removeprefix("cu")
    return _Node(
        kind=OperationKind.COPY,
        name=name,
        stream=reader.stream_or_default(call),
        duration_ns=call.device_ns or 0,
        flags=UNRESOLVED,
    )


def _memop(call: Call, reader: _Reader) -> _Node:
    is_write = "Write" in call.type.base
    return _Node(
        kind=OperationKind.MEMOP,
        name="write value" if is_write else "wait for value",
        stream=reader.stream_or_default(call),
        object=meaning.word(call, "addr"),
        flags=0 if is_write else UNKNOWN_ORDER,  # who writes it is not known
    )


def _host(call: Call, reader: _Reader) -> _Node:
    function = meaning.word(call, "fn") or meaning.word(call, "callback")
    kind = OperationKind.HOST_FUNC
    return _Node(
        kind=kind,
        name="host function",
        stream=reader.stream_or_default(call),
        object=function,
        flags=UNRESOLVED,
    )


def _alloc(call: Call, reader: _Reader) -> _Node:
    address, size = meaning.allocated_address(call), meaning.allocated_bytes(call)
    reader.allocations[call.pid].add(address, meaning.reserved_bytes(call))
    kind = OperationKind.ALLOC
    return _Node(kind=kind, name="alloc", stream=reader.stream(call), object=address, bytes=size)


def _free(call: Call, reader: _Reader) -> _Node:
    address = meaning.word(call, "dptr")
    size = reader.allocations[call.pid].remove(address)
    kind = OperationKind.FREE
    return _Node(kind=kind, name="free", stream=reader.stream(call), object=address, bytes=size)


def _record(call: Call, reader: _Reader) -> _Node:
    stream, event = reader.stream_or_default(call), reader.event(call)
    kind = OperationKind.EVENT_RECORD
    return _Node(kind=kind, name="event record", stream=stream, object=event)


def _wait(call: Call, reader: _Reader) -> _Node:
    return _Node(
        kind=OperationKind.EVENT_WAIT,
        name="event wait",
        stream=reader.stream_or_default(call),
        object=reader.event(call),
        flags=reader.order_flags(call),
    )


def _of_context(make: Callable[[Call, _Reader], _Node]) -> Callable[[Call, _Reader], _Node]:
    # An event of all streams of a context. The legacy stream comes nearest, but leaves out those
    # that do not wait for it.
    def made(call: Call, reader: _Reader) -> _Node:
        node = make(call, reader)
        node.stream, node.flags = reader.legacy(call), node.flags | UNKNOWN_ORDER
        return node

    return made


def _sync_stream(call: Call, reader: _Reader) -> _Node:
    stream, ns = reader.stream_or_default(call), call.duration_ns or 0
    kind = OperationKind.SYNC_STREAM
    return _Node(kind=kind, name=_how(call, "stream"), stream=stream, duration_ns=ns)


def _how(call: Call, what: str) -> str:
    return f"{what} found done" if "Query" in call.type.base else f"wait for {what}"


def _sync_event(call: Call, reader: _Reader) -> _Node:
    return _Node(
        kind=OperationKind.SYNC_EVENT,
        name=_how(call, "event"),
        object=reader.event(call),
        flags=reader.order_flags(call),
        duration_ns=call.duration_ns or 0,
    )


def _sync_context(call: Call, _reader: _Reader) -> _Node:
    ns = call.duration_ns or 0
    return _Node(kind=OperationKind.SYNC_CONTEXT, name="wait for context", duration_ns=ns)


_Make = Callable[[Call, _Reader], _Node | None]

_MAKERS: dict[str, _Make] = {
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
    "record_context": _of_context(_record),
    "wait": _wait,
    "wait_context": _of_context(_wait),
    "sync_stream": _sync_stream,
    "sync_event": _sync_event,
    "sync_context": _sync_context,
}
_OTHERS: dict[str, _Make] = {"copy": _other_copy}  # by class of calls.def
