"""Recordings as Chrome trace-event JSON, for ui.perfetto.dev and chrome://tracing.

Calls are slices on the tracks of their threads. For a launch, only its duration on the GPU is
known, not its start. It is drawn at the earliest possible time: after its call has returned and the
previous launch in its stream has ended.
"""

import json
from collections.abc import Iterator
from typing import TextIO

from tandem.trace.file import Recording
from tandem.trace.lines import arguments_of
from tandem.trace.records import LEGACY_STREAM, PER_THREAD_STREAM, Call

_STREAM_NAMES = {LEGACY_STREAM: "legacy stream", PER_THREAD_STREAM: "per-thread stream"}

Event = dict[str, object]


def write(recording: Recording, file: TextIO) -> None:
    """Write the whole recording; any size."""
    file.write('{"displayTimeUnit":"ns","traceEvents":[')
    separator = "\n"
    for event in events(recording):
        file.write(separator + json.dumps(event, separators=(",", ":")))
        separator = ",\n"
    file.write("\n]}\n")


def events(recording: Recording) -> Iterator[Event]:
    """Yield names of processes and streams, a slice per call, and one per call timed on the GPU."""
    for process in recording.processes:
        yield _name("process_name", process.pid, 0, f"{process.name} ({process.pid})")
    rows = _StreamRows()
    for call in recording.calls:
        if call.duration_ns is None:
            continue
        yield _slice(call, recording)
        if call.device_ns is not None:
            yield from rows.slices(call)


class _StreamRows:
    """Lays out a track for each stream below its process."""

    def __init__(self) -> None:
        self._free_ns: dict[tuple[int, int], int] = {}
        self._rows: dict[tuple[int, int], int] = {}

    def slices(self, call: Call) -> Iterator[Event]:
        stream = call.stream or LEGACY_STREAM
        key = (call.pid, stream)
        row = self._rows.setdefault(key, (1 << 30) + len(self._rows))
        if key not in self._free_ns:
            name = _STREAM_NAMES.get(stream, f"stream {stream:#x}")
            yield _name("thread_name", call.pid, row, f"GPU {name} (begins are estimates)")
        start = max(call.start_ns + (call.duration_ns or 0), self._free_ns.get(key, 0))
        self._free_ns[key] = start + (call.device_ns or 0)
        name = call.function.name if call.function else call.type.base
        yield _complete(name or call.type.base, "gpu", call.pid, row, start, call.device_ns or 0)


def _slice(call: Call, recording: Recording) -> Event:
    event = _complete(
        call.type.base, call.type.group, call.pid, call.tid, call.start_ns, call.duration_ns or 0
    )
    table = recording.header.table
    result = table.result_name(call.result or 0)
    event["args"] = {**dict(arguments_of(call, table)), "result": result}
    return event


def _complete(name: str, group: str, pid: int, tid: int, start_ns: int, ns: int) -> Event:
    times = {"ts": start_ns / 1000, "dur": ns / 1000}
    return {"ph": "X", "name": name, "cat": group, "pid": pid, "tid": tid, **times}


def _name(kind: str, pid: int, tid: int, name: str) -> Event:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}
