"""The run as a Chrome trace, to open in ui.perfetto.dev or chrome://tracing.

One process track per program and scenario; one thread track per stream of the software GPU, and one
for the requests or iterations as the program saw them. Times are microseconds from the scenario's
start.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tandem.demo.measure import Outcome, WorkerReport

Event = dict[str, Any]
PROGRAM_TRACK = 0


def write_trace(path: Path, outcomes: Sequence[Outcome]) -> None:
    """Write all scenarios into one file.

    Raises:
        OSError: the file cannot be written.
    """
    events: list[Event] = []
    next_pid = 1
    for outcome in outcomes:
        for worker in outcome.workers:
            events += _worker_events(outcome, worker, track_pid=next_pid)
            next_pid += 1
    path.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}))


def _worker_events(outcome: Outcome, worker: WorkerReport, *, track_pid: int) -> Iterator[Event]:
    yield _name("process_name", f"{outcome.name}: {worker.role}", track_pid, PROGRAM_TRACK)
    unit = "request" if worker.role == "server" else "iteration"
    yield _name("thread_name", f"{unit}s", track_pid, PROGRAM_TRACK)
    for number, (begin, end) in enumerate(worker.intervals, start=1):
        yield _slice(f"{unit} {number}", begin, end, worker, track_pid, PROGRAM_TRACK)
    spans = [s for s in outcome.spans if s.pid == worker.pid and s.start_ns >= worker.start_ns]
    tracks = {stream: i for i, stream in enumerate(sorted({s.stream for s in spans}), start=1)}
    for stream, track in tracks.items():
        yield _name("thread_name", f"stream {stream}", track_pid, track)
    for span in spans:
        name = span.name or span.kind
        track = tracks[span.stream]
        yield _slice(name, span.start_ns, span.end_ns, worker, track_pid, track)


def _name(kind: str, text: str, pid: int, tid: int) -> Event:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": text}}


def _slice(
    name: str, begin_ns: int, end_ns: int, worker: WorkerReport, pid: int, tid: int
) -> Event:
    return {
        "ph": "X",
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": (begin_ns - worker.start_ns) / 1e3,
        "dur": (end_ns - begin_ns) / 1e3,
    }
