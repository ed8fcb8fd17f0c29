"""Decodes 64-byte records into calls, per csrc/core/trace_layout.h, and trusts no input."""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tandem.trace.table import CallType, Table

RECORD = struct.Struct("<QBBHIQQQIIQQ")  # shm::Record
RECORD_BYTES = RECORD.size
_PAYLOAD_BYTES = 48

CALL, WORDS, TEXT, FUNCTION, PROCESS, DEVICE_TIME, LOST, CHUNK, END = range(15, 24)
_NO_STREAM = 2**64 - 1
_MAX_WORDS, _MAX_TEXT = 96, 4096
# For N records that continue a call, each of which begins with a head of 16 bytes.
_WORDS_OF = [struct.Struct("<" + "16x6Q" * n) for n in range(_MAX_WORDS // 6 + 1)]
_TEXT_OF = [struct.Struct("<" + "16x48s" * n) for n in range(-(-_MAX_TEXT // 48) + 1)]
_HOST_TIME, _UNFINISHED, _TIMED, _CUT, _CAPTURED, _NON_BLOCKING = 1, 2, 4, 8, 16, 32
_MOST_SMS = 2**32 - 1

LEGACY_STREAM, PER_THREAD_STREAM = 1, 2


class DamagedError(ValueError):
    """A record that no writer produces; carries its number, counted from 0.

    Not raised for a file that is merely truncated.
    """

    def __init__(self, text: str, *, record: int) -> None:
        super().__init__(text)
        self.record = record


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Function:
    """A kernel as the driver described it; each description is a distinct object."""

    handle: int
    name: str
    parameters: tuple[tuple[int, int], ...]  # offset and size in bytes of each


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """The properties of a GPU that tell what a kernel is bound by."""

    sm_count: int = 0  # 0 = not known
    bandwidth_bytes_per_s: int = 0  # of its memory; 0 = not known


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A traced process."""

    pid: int
    name: str
    device: Device | None = None  # the device of one of its contexts; None: not in this record


@dataclass(slots=True, kw_only=True)
class Call:
    """One call. Times are nanoseconds of CLOCK_MONOTONIC, or of the device's virtual clock."""

    type: CallType
    pid: int
    tid: int
    number: int  # unique among all calls, in the order in which they began
    start_ns: int
    duration_ns: int | None  # None: the call never returned
    result: int | None
    stream: int | None  # 1 and 2 are the legacy and the per-thread default stream
    context: int  # the stream's, else the one current afterwards; 0 = none
    words: tuple[int, ...]
    text: str
    function: Function | None
    has_host_time: bool  # its time is CLOCK_MONOTONIC although the device's clock is virtual
    is_cut: bool  # it had more kernel parameters than were recorded
    is_captured: bool  # into a graph, so it computed nothing
    is_non_blocking: bool  # its stream does not wait for the legacy stream
    device_ns: int | None = None  # duration of the launch on the GPU, if it was measured

    @property
    def failed(self) -> bool:
        """Whether the driver refused the call; a query's "not yet" is no refusal."""
        return self.result not in (None, 0, 600)  # 600: CUDA_ERROR_NOT_READY

    @property
    def is_lookup(self) -> bool:
        """Whether the call only looks up another one."""
        return self.type.base == "cuGetProcAddress"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """Calls that a thread could not record, just before the next item from it."""

    pid: int
    tid: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The end of the command and of the trace."""

    status: int  # exit code of the command
    lost: int  # number of calls that were not recorded


Item = Call | Process | Lost | End


class Decoder:
    """Decodes chunks in the order in which they were written, keeping functions and processes."""

    def __init__(self, table: Table) -> None:
        self._known = _Known(table)
        self._base = 0  # number of records in earlier feeds
        self.is_cut_short = False  # the last chunk had fewer records than announced

    def feed(self, data: bytes) -> Iterator[Item]:
        """Yield the items of all whole chunks; a partial record or chunk at the end is left out.

        Raises:
            DamagedError: a record that is not possible.
        """
        count = len(data) // RECORD_BYTES
        at = 0
        while at < count:
            head = RECORD.unpack_from(data, at * RECORD_BYTES)
            kind = head[1]
            if kind == END:
                yield End(status=head[6] & 0xFF, lost=head[11])
                at += 1
                continue
            if kind != CHUNK:
                raise self._damaged(at, f"has kind {kind} where a chunk begins")
            length = head[7]
            whole = min(length, count - at - 1)
            self.is_cut_short = whole < length
            chunk = _Chunk(self._known, data, head, begin=at + 1, end=at + 1 + whole)
            try:
                yield from chunk.items()
            except DamagedError as exc:
                raise self._damaged(exc.record, str(exc)) from exc
            self.is_cut_short |= chunk.is_cut_short
            at += 1 + whole
        self._base += count

    def _damaged(self, at: int, text: str) -> DamagedError:
        return DamagedError(text, record=self._base + at)


def _device(words: tuple[int, ...]) -> Device | None:
    match words:
        case (sm_count, bandwidth, *_):
            return Device(sm_count=min(sm_count, _MOST_SMS), bandwidth_bytes_per_s=bandwidth)
    return None


class _Known:
    """State from earlier records."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.functions: dict[tuple[int, int], dict[int, Function]] = {}  # by process and thread
        # A call and its device time may be written by two threads, and arrive in either order.
        self._untold: dict[int, Call] = {}
        self._early_ns: dict[int, int] = {}

    def expect_time(self, call: Call) -> None:
        """Set the call's device time, now or when it arrives."""
        call.device_ns = self._early_ns.pop(call.number, None)
        if call.device_ns is None:
            self._untold[call.number] = call

    def tell_time(self, number: int, device_ns: int) -> None:
        """Take a device time that has arrived."""
        if call := self._untold.pop(number, None):
            call.device_ns = device_ns
        else:
            self._early_ns[number] = device_ns


class _Chunk:
    """The records of one thread in a chunk."""

    def __init__(
        self, known: _Known, data: bytes, head: tuple[int, ...], *, begin: int, end: int
    ) -> None:
        self._known = known
        self._data = data
        self._pid = head[6]
        self._tid = head[4]
        self._at = begin
        self._end = end
        self._functions = known.functions.setdefault((self._pid, self._tid), {})
        self.is_cut_short = False

    def items(self) -> Iterator[Item]:
        while self._at < self._end:
            first = self._at
            head = RECORD.unpack_from(self._data, first * RECORD_BYTES)
            self._at += 1
            match head[1]:
                case 15 | 18 | 19:  # CALL, FUNCTION, PROCESS: have words and text
                    payload = self._payload(head)
                    if payload is None:  # the chunk is truncated here
                        self.is_cut_short = True
                        return
                    item = self._event(first, head, *payload)
                    if item is not None:
                        yield item
                case 20:
                    self._device_time(head)
                case 21:
                    yield Lost(pid=self._pid, tid=self._tid, count=head[11])
                case kind:
                    raise self._damaged(first, f"has kind {kind}")

    def _payload(self, head: tuple[int, ...]) -> tuple[tuple[int, ...], str] | None:
        # The words and text that follow a head; None if the data end before.
        first = self._at - 1
        word_count, text_bytes = head[8], head[9]
        if word_count > _MAX_WORDS or text_bytes > _MAX_TEXT:
            raise self._damaged(first, f"has {word_count} words and {text_bytes} bytes of text")
        word_records, text_records = -(-word_count // 6), -(-text_bytes // _PAYLOAD_BYTES)
        if self._at + word_records + text_records > self._end:
            return None
        words = self._take(WORDS, word_records, _WORDS_OF)
        text = b"".join(self._take(TEXT, text_records, _TEXT_OF)) if text_records else b""
        return words[:word_count], text[:text_bytes].decode(errors="replace")

    def _take(self, kind: int, count: int, formats: Sequence[struct.Struct]) -> tuple[Any, ...]:
        # Unpack the next `count` records, which must all be of that kind.
        start = self._at * RECORD_BYTES
        kinds = self._data[start + 8 : start + count * RECORD_BYTES : RECORD_BYTES]
        if kinds.count(kind) != count:
            place, found = next((i, found) for i, found in enumerate(kinds) if found != kind)
            text = f"has kind {found} where {kind} continues a call"
            raise self._damaged(self._at + place, text)
        self._at += count
        return formats[count].unpack_from(self._data, start)

    def _event(
        self, first: int, head: tuple[int, ...], words: tuple[int, ...], text: str
    ) -> Item | None:
        match head[1]:
            case 15:
                return self._call(first, head, words, text)
            case 18:
                parameters = tuple((w >> 32, w & 0xFFFFFFFF) for w in words)
                function = Function(handle=head[6], name=text, parameters=parameters)
                self._functions[function.handle] = function
                return None
            case _:
                return self._process(head, words, text)

    def _process(self, head: tuple[int, ...], words: tuple[int, ...], text: str) -> Process:
        return Process(
            pid=self._pid,
            name=text,
            device=_device(words),
        )

    def _call(self, first: int, head: tuple[int, ...], words: tuple[int, ...], text: str) -> Call:
        table = self._known.table
        if head[3] >= len(table.calls):
            raise self._damaged(first, f"is of call {head[3]}; there are {len(table.calls)}")
        kind = table.calls[head[3]]
        flags = head[2]
        is_finished = not flags & _UNFINISHED
        if is_finished and len(words) < kind.words:
            raise self._damaged(
                first, f"has {len(words)} words for {kind.name}, which takes {kind.words}"
            )
        call = Call(
            type=kind,
            pid=self._pid,
            tid=self._tid,
            number=head[6],
            start_ns=head[0],
            duration_ns=head[10] if is_finished else None,
            result=head[11] if is_finished else None,
            stream=None if head[5] == _NO_STREAM else head[5],
            context=head[7],
            words=words,
            text=text,
            function=self._function_of(kind, words),
            has_host_time=bool(flags & _HOST_TIME),
            is_cut=bool(flags & _CUT),
            is_captured=bool(flags & _CAPTURED),
            is_non_blocking=bool(flags & _NON_BLOCKING),
        )
        if flags & _TIMED:
            self._known.expect_time(call)
        return call

    def _function_of(self, kind: CallType, words: tuple[int, ...]) -> Function | None:
        handle = kind.value(words, "f")
        return None if handle is None else self._functions.get(handle)

    def _device_time(self, head: tuple[int, ...]) -> None:
        self._known.tell_time(head[6], head[10])

    def _damaged(self, at: int, text: str) -> DamagedError:
        return DamagedError(text, record=at)
