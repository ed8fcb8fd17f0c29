"""Builds recordings record by record, as the shim and the tracer write them."""

from tandem._native import TRACE_CALLS
from tandem.trace.file import header_line, new_header, parse
from tandem.trace.records import (
    CALL,
    CHUNK,
    DEVICE_TIME,
    END,
    FUNCTION,
    LOST,
    PROCESS,
    RECORD,
    TEXT,
    WORDS,
)
from tandem.trace.table import parse_table

TABLE = parse_table(TRACE_CALLS)
INDEX = {call.name: number for number, call in enumerate(TABLE.calls)}
NO_STREAM = 2**64 - 1
PID = 100
CONTEXT = 0xC0
VADD = 0xF0


class Thread:
    """Collects the records of one thread in one chunk."""

    def __init__(self, tid=PID, pid=PID, *, time_ns=1000):
        self.tid, self.pid, self.time_ns = tid, pid, time_ns
        self.records = []
        self._event(PROCESS, words=(), text=b"prog", stream=1, object_=pid, bytes_=1)

    def device(self, sm_count, bandwidth_bytes_per_s):
        """Sets the device of the contexts from here on."""
        words = (sm_count, bandwidth_bytes_per_s)
        self._event(PROCESS, words=words, text=b"prog", stream=1, object_=self.pid, bytes_=1)
        return self

    def call(self, name, *words, number, stream=NO_STREAM, text=b"", **other):
        """A call of 10 ns; `other` overrides ns, result, flags, context and device_ns."""
        device_ns = other.get("device_ns")
        self._event(
            CALL,
            words=words,
            text=text,
            flags=other.get("flags", 0) | (4 if device_ns is not None else 0),
            slot=INDEX[name],
            stream=stream,
            object_=number,
            bytes_=other.get("context", CONTEXT),
            duration=other.get("ns", 10),
            value=other.get("result", 0),
        )
        self.time_ns += other.get("ns", 10)
        if device_ns is not None:
            self._event(DEVICE_TIME, words=(), text=b"", object_=number, duration=device_ns)
        return self

    def function(self, handle=VADD, name=b"vadd", sizes=(8, 4)):
        """Names a kernel."""
        offsets = [sum(sizes[:i]) for i in range(len(sizes))]
        words = [o << 32 | s for o, s in zip(offsets, sizes, strict=True)]
        self._event(FUNCTION, words=words, text=name, object_=handle)
        return self

    def launch(self, *, number, stream, device_ns=None, function=VADD, parameters=(0x7F00, 5)):
        """Launches one block of 32 threads."""
        words = (function, 1, 1, 1, 32, 1, 1, 0, stream, 0x1000, 0, *parameters)
        return self.call(
            "cuLaunchKernel", *words, number=number, stream=stream, device_ns=device_ns
        )

    def device_time(self, *, number, device_ns):
        """Report the device time of another thread's launch."""
        self._event(DEVICE_TIME, words=(), text=b"", object_=number, duration=device_ns)
        return self

    def lost(self, count):
        self._event(LOST, words=(), text=b"", value=count)
        return self

    def chunk(self):
        """Return everything so far as the tracer writes it."""
        count = len(self.records)
        head = RECORD.pack(0, CHUNK, 0, 0, self.tid, 0, self.pid, count, 0, 0, 0, 0)
        return head + b"".join(self.records)

    def _event(self, kind, *, words, text, object_=0, bytes_=0, **other):
        self.records.append(
            RECORD.pack(
                self.time_ns,
                kind,
                other.get("flags", 0),
                other.get("slot", 0),
                self.tid,
                other.get("stream", 0),
                object_,
                bytes_,
                len(words),
                len(text),
                other.get("duration", 0),
                other.get("value", 0),
            )
        )
        padded = [*words, *[0] * (-len(words) % 6)]
        for at in range(0, len(padded), 6):
            six = b"".join(word.to_bytes(8, "little") for word in padded[at : at + 6])
            self.records.append(self._continuation(WORDS, six))
        for at in range(0, len(text), 48):
            self.records.append(self._continuation(TEXT, text[at : at + 48].ljust(48, b"\0")))

    def _continuation(self, kind, payload):
        return RECORD.pack(self.time_ns, kind, 0, 0, self.tid, 0, 0, 0, 0, 0, 0, 0)[:16] + payload


def end(status=0, lost=0):
    return RECORD.pack(0, END, 0, 0, 0, 0, status, 1, 0, 0, 0, lost)


def header(device_times=True):
    return header_line(new_header(["python", "x.py"], device_times=device_times, table=TABLE))


def file_of(*threads, finish=True):
    return header() + b"".join(thread.chunk() for thread in threads) + (end() if finish else b"")


def recording_of(*threads):
    return parse(file_of(*threads))
