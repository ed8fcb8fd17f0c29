"""Numbers for the handles in recorded calls: of processes, contexts, streams, threads and events.

Handles are unique only within their process: the same stream or event again has the same number,
until the stream or its context is destroyed. There is one legacy stream for each context, and one
per-thread default stream for each thread.
"""

from collections import Counter
from collections.abc import Sequence

from tandem._native import StreamKind
from tandem.dag.model import Process, Stream, Thread
from tandem.dag.names import EVENTS_OF_CONTEXT
from tandem.trace import meaning
from tandem.trace.records import LEGACY_STREAM, PER_THREAD_STREAM, Call
from tandem.trace.records import Process as Traced

_APART = 0  # no stream has that handle in a recording


class Handles:
    """Assigns each handle its number when it first occurs."""

    def __init__(self, traced: Sequence[Traced]) -> None:
        self.processes: list[Process] = []
        self.streams: list[Stream] = []
        self.threads: list[Thread] = []
        self.context_count = 0
        self._names = {process.pid: process.name for process in traced}
        self._processes: dict[int, int] = {}
        self._contexts: dict[tuple[int, int], int] = {}
        self._threads: dict[tuple[int, int], int] = {}
        self._streams: dict[tuple[int, ...], int] = {}
        self._made: Counter[int] = Counter()  # named streams, by process
        self._events: dict[tuple[int, int], int] = {}

    def process(self, pid: int) -> int:
        """The number of the process with that pid."""
        if pid not in self._processes:
            self._processes[pid] = len(self.processes)
            self.processes.append(Process(pid=pid, name=self._names.get(pid, "")))
        return self._processes[pid]

    def context(self, call: Call) -> int:
        """The context that a call names, or else the one it was made in."""
        key = (call.pid, meaning.named_context(call) or call.context)
        number = self._contexts.get(key)
        if number is None:
            number = self._contexts[key] = self.context_count
            self.context_count += 1
        return number

    def thread(self, call: Call) -> int:
        """The thread that made the call."""
        key = (call.pid, call.tid)
        number = self._threads.get(key)
        if number is None:
            number = self._threads[key] = len(self.threads)
            self.threads.append(Thread(process=self.process(call.pid), tid=call.tid))
        return number

    def stream(self, call: Call) -> int | None:
        """The stream that a call names, if any."""
        return None if call.stream is None else self._of_handle(call.stream, call)

    def stream_or_default(self, call: Call) -> int:
        """The stream that a call names, or else the default stream that it uses."""
        return self._of_handle(call.stream or _default(call), call)

    def legacy(self, call: Call) -> int:
        """The legacy stream of the call's context."""
        key = (call.pid, LEGACY_STREAM, self.context(call))
        return self._stream(key, call, StreamKind.LEGACY)

    def apart(self, call: Call) -> int:
        """A stand-in stream of the call's context, which orders none of its other work."""
        key = (call.pid, _APART, self.context(call))
        return self._stream(key, call, StreamKind.NON_BLOCKING)

    def event(self, call: Call) -> int:
        """The event that a call names; counted from 1."""
        key = (call.pid, meaning.word(call, "hEvent"))
        return self._events.setdefault(key, len(self._events) + 1)

    def forget_stream(self, call: Call) -> None:
        """Forget a destroyed stream: the driver may reuse its handle."""
        self._streams.pop((call.pid, call.stream or 0), None)

    def forget_context(self, call: Call) -> None:
        """Forget a destroyed context and its streams."""
        number = self._contexts.pop((call.pid, meaning.word(call, "ctx")), None)
        gone = [k for k, s in self._streams.items() if self.streams[s].context == number]
        for key in gone:
            del self._streams[key]

    def _of_handle(self, handle: int, call: Call) -> int:
        if handle == LEGACY_STREAM:
            return self.legacy(call)
        owner = (call.context, call.tid) if handle == PER_THREAD_STREAM else ()
        kind = StreamKind.NON_BLOCKING if call.is_non_blocking else StreamKind.BLOCKING
        return self._stream((call.pid, handle, *owner), call, kind)

    def _stream(self, key: tuple[int, ...], call: Call, kind: StreamKind) -> int:
        if key not in self._streams:
            process = self.process(call.pid)
            self._streams[key] = len(self.streams)
            context = self.context(call)
            name = self._name(process, kind, handle=key[1], tid=call.tid)
            self.streams.append(Stream(process=process, context=context, kind=kind, name=name))
        return self._streams[key]

    def _name(self, process: int, kind: StreamKind, *, handle: int, tid: int) -> str:
        if kind is StreamKind.LEGACY:
            return "legacy stream"
        if handle == _APART:
            return EVENTS_OF_CONTEXT
        if handle == PER_THREAD_STREAM:
            return f"default stream of thread {tid}"
        self._made[process] += 1
        return f"stream {self._made[process]}"


def _default(call: Call) -> int:
    own = call.type.name.endswith(("_ptds", "_ptsz"))
    return PER_THREAD_STREAM if own else LEGACY_STREAM
