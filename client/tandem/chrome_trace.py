"""Traces in Chrome's JSON format, to open in ui.perfetto.dev or chrome://tracing.

Events are written as they come, so a trace may be larger than memory. Times are nanoseconds here
and microseconds in the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TextIO

Event = dict[str, Any]


class TraceWriter:
    """Writes one trace to an open file; leaving the block completes the trace."""

    def __init__(self, file: TextIO, *, begin_ns: int = 0) -> None:
        """`begin_ns` is subtracted from all times, because viewers read times as floats.

        Counted from 1970, floats have steps of 256 ns, and of two touching slices one is lost.
        """
        self._file = file
        self._begin_ns = begin_ns
        self._separator = ""

    def __enter__(self) -> TraceWriter:
        """Write the beginning of the file."""
        self._file.write('{"displayTimeUnit": "ms", "traceEvents": [')
        return self

    def __exit__(self, *_: object) -> None:
        """Write the end of the file, even after an error: viewers then show what there is."""
        self._file.write("\n]}\n")

    def process(self, pid: int, name: str, *, order: int = 0) -> None:
        """Name the track of a process; tracks of lower `order` are shown further up."""
        self._write({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}})
        if order:
            args = {"sort_index": order}
            self._write({"ph": "M", "name": "process_sort_index", "pid": pid, "args": args})

    def thread(self, pid: int, tid: int, name: str) -> None:
        """Name the track of a thread."""
        event = {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}
        self._write(event)

    def slice(
        self,
        pid: int,
        tid: int,
        name: str,
        *,
        start_ns: int,
        end_ns: int,
        args: Mapping[str, object] | None = None,
    ) -> None:
        """Write an interval on the track of a thread."""
        event: Event = {"ph": "X", "name": name, "pid": pid, "tid": tid}
        event |= {"ts": self._us(start_ns), "dur": (end_ns - start_ns) / 1e3}
        if args:
            event["args"] = dict(args)
        self._write(event)

    def flow(
        self,
        id_: int,
        name: str,
        *,
        ends: tuple[tuple[int, int], tuple[int, int]],
        at_ns: tuple[int, int],
    ) -> None:
        """Draw an arrow between slices; an end is a process, a thread and a time in the slice."""
        for phase, (pid, tid), ns in zip("sf", ends, at_ns, strict=True):
            event: Event = {"ph": phase, "id": id_, "name": name, "cat": "edge", "pid": pid}
            event |= {"tid": tid, "ts": self._us(ns)}
            if phase == "f":
                event["bp"] = "e"  # bind to the slice around the time, not to the next one
            self._write(event)

    def counter(self, pid: int, name: str, at_ns: int, value: float) -> None:
        """Set the value of a process's counter from this time on."""
        event = {"ph": "C", "name": name, "pid": pid, "ts": self._us(at_ns), "args": {name: value}}
        self._write(event)

    def _us(self, at_ns: int) -> float:
        return (at_ns - self._begin_ns) / 1e3

    def _write(self, event: Event) -> None:
        self._file.write(f"{self._separator}\n{json.dumps(event)}")
        self._separator = ","
