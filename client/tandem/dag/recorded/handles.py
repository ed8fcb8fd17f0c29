"""Numbers for the handles in recorded calls: of processes, contexts, streams, threads and events.

Handles are numbers of their process: the same stream or event again is the same number, until the
stream or its context is destroyed. The legacy stream is one a context, the per-thread one one a
thread.
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
    """Gives each handle its number when it is first seen."""

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
        """The process of that id."""
        if pid not in self._processes:
            self._processes[pid] = len(self.processes)
            self.processes.append(Process(pid=pid, name=self._names.get(pid, "")))
        return self._processes[pid]

    def context(self, call: Call) -> int:
        """The context that a call names, else the one it was made in."""
        key = (call.pid, meaning.named_context(call) or call.context)
        number = self._contexts.get(key)
        if number is None:
            number = self._contexts[key] = self.context_count
            self.context_count += 1
        return number

    def thread(self, call: Call) -> int:
        """The thread that makes the call."""
        key = (call.pid, call.tid)
        number = self._threads.get(key)
        if number is None:
            number = self._threads[key] = len(self.threads)
            self.threads.append(Thread(process=self.process(call.pid), tid=call.tid))
        return number

    def stream(self, call: Call) -> int | None:
        """The stream that a call names, if it does."""
        return None if call.stream is None else self._of_handle(call.stream, call)

    def stream_or_default(self, call: Call) -> int:
        """The stream of a call that works in the default stream where it names none."""
        return self._of_handle(call.stream or _default(call), call)

    def legacy(self, call: Call) -> int:
        """The legacy stream of the call's context."""
        key = (call.pid, LEGACY_STREAM, self.context(call))
        return self._stream(key, call, StreamKind.LEGACY)

    def apart(self, call: Call) -> int:
        """A stream of the call's context that orders nothing else of it."""
        key = (call.pid, _APART, self.context(call))
        return self._stream(key, call, StreamKind.NON_BLOCKING)

    def event(self, call: Call) -> int:
        """The event that a call names; from 1 on."""
        key = (call.pid, meaning.word(call, "hEvent"))
        return self._events.setdefault(key, len(self._events) + 1)

    def forget_stream(self, call: Call) -> None:
        """It is destroyed: the driver may give its handle to another one."""
        self._streams.pop((call.pid, call.stream or 0), None)

    def forget_context(self, call: Call) -> None:
        """The same of a context, and of the streams in it."""
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
