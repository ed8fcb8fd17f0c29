"""The run as a Chrome trace, for ui.perfetto.dev or chrome://tracing.

There is one process track per program and scenario, with a thread track per stream of the software
GPU, and one for the requests or iterations as the program saw them. Times count from the scenario's
start.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tandem.chrome_trace import TraceWriter
from tandem.demo.measure import Outcome, WorkerReport

PROGRAM_TRACK = 0


def write_trace(path: Path, outcomes: Sequence[Outcome]) -> None:
    """Write all scenarios into one file.

    Raises:
        OSError: the file cannot be written.
    """
    next_pid = 1
    with path.open("w") as file, TraceWriter(file) as trace:
        for outcome in outcomes:
            for worker in outcome.workers:
                _write_worker(trace, outcome, worker, track_pid=next_pid)
                next_pid += 1


def _write_worker(
    trace: TraceWriter, outcome: Outcome, worker: WorkerReport, *, track_pid: int
) -> None:
    trace.process(track_pid, f"{outcome.name}: {worker.role}")
    unit = "request" if worker.role == "server" else "iteration"
    trace.thread(track_pid, PROGRAM_TRACK, f"{unit}s")
    slices = [
        (PROGRAM_TRACK, f"{unit} {number}", begin, end)
        for number, (begin, end) in enumerate(worker.intervals, start=1)
    ]
    spans = [s for s in outcome.spans if s.pid == worker.pid and s.start_ns >= worker.start_ns]
    tracks = {stream: i for i, stream in enumerate(sorted({s.stream for s in spans}), start=1)}
    for stream, track in tracks.items():
        trace.thread(track_pid, track, f"stream {stream}")
    slices += [(tracks[s.stream], s.name or s.kind, s.start_ns, s.end_ns) for s in spans]
    for track, name, begin_ns, end_ns in slices:
        start_ns, stop_ns = begin_ns - worker.start_ns, end_ns - worker.start_ns
        trace.slice(track_pid, track, name, start_ns=start_ns, end_ns=stop_ns)
