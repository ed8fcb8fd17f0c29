"""Traces in Chrome's JSON format, to open in ui.perfetto.dev or chrome://tracing.

Events go to the file as they come, so a trace may be larger than memory. Times are nanoseconds here
and microseconds in the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TextIO

Event = dict[str, Any]


class TraceWriter:
    """Writes one trace to an open file; the trace is complete when the block is left."""

    def __init__(self, file: TextIO, *, begin_ns: int = 0) -> None:
        """`begin_ns`: what times are counted from. Viewers read them as floats.

        Since 1970 those come in steps of 256 ns, and of two slices that touch one is lost.
        """
        self._file = file
        self._begin_ns = begin_ns
        self._separator = ""

    def __enter__(self) -> TraceWriter:
        """Begin the file."""
        self._file.write('{"displayTimeUnit": "ms", "traceEvents": [')
        return self

    def __exit__(self, *_: object) -> None:
        """End the file, also when the events ended early: a viewer then shows what there is."""
        self._file.write("\n]}\n")

    def process(self, pid: int, name: str, *, order: int = 0) -> None:
        """Name the track of a process; tracks of lower `order` are further up."""
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
        """Something that lasted, on the track of a thread."""
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
        """An arrow between slices: process, thread and a time within the slice, at both ends."""
        for phase, (pid, tid), ns in zip("sf", ends, at_ns, strict=True):
            event: Event = {"ph": phase, "id": id_, "name": name, "cat": "edge", "pid": pid}
            event |= {"tid": tid, "ts": self._us(ns)}
            if phase == "f":
                event["bp"] = "e"  # to the slice around the time, not the next one
            self._write(event)

    def counter(self, pid: int, name: str, at_ns: int, value: float) -> None:
        """The value of a counter of a process from then on."""
        event = {"ph": "C", "name": name, "pid": pid, "ts": self._us(at_ns), "args": {name: value}}
        self._write(event)

    def _us(self, at_ns: int) -> float:
        return (at_ns - self._begin_ns) / 1e3

    def _write(self, event: Event) -> None:
        self._file.write(f"{self._separator}\n{json.dumps(event)}")
        self._separator = ","
