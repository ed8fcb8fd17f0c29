"""A timeline as a Perfetto trace: a process for each client, a track for each of its streams.

The engines of each GPU are counters of a separate process, averaged over intervals.
"""

from __future__ import annotations

from pathlib import Path

from tandem.chrome_trace import TraceWriter
from tandem.softgpu._buckets import Buckets
from tandem.softgpu._timeline import Row, Timeline

_FIRST_GPU = 1_000_000_000  # pids of the GPUs' tracks; clients have their own numbers
_SWITCHES = 0  # tid
COPY_ENGINES = {"copy_htod": "copies to the device", "copy_dtoh": "copies from the device"}


def write_perfetto(timeline: Timeline, output: Path) -> int:
    """Convert a timeline without loading it as a whole; return the number of rows.

    Raises:
        NotFoundError: there is no such timeline.
        UsageError: it cannot be read.
        OSError: the output cannot be written.
    """
    known: set[tuple[int, int]] = set()
    engines: dict[tuple[int, str], Buckets] = {}
    count = 0
    with output.open("w") as file, TraceWriter(file) as trace:
        for row in timeline.rows():
            count += 1
            _write_row(trace, row, known)
            _note_engine(engines, row)
        for (gpu, name), buckets in sorted(engines.items()):
            _write_counter(trace, _FIRST_GPU + gpu, name, buckets)
    return count


def _write_row(trace: TraceWriter, row: Row, known: set[tuple[int, int]]) -> None:
    is_switch = row.kind == "switch"
    pid = _FIRST_GPU + row.gpu if is_switch else row.client
    tid = _SWITCHES if is_switch else row.stream
    if (pid, -1) not in known:
        known.add((pid, -1))
        name = f"GPU {row.gpu}" if is_switch else f"client {row.client} (pid {row.pid})"
        trace.process(pid, name, order=pid)
    if (pid, tid) not in known:
        known.add((pid, tid))
        trace.thread(pid, tid, "switches" if is_switch else f"stream {tid}, gpu {row.gpu}")
    args: dict[str, object] = {"op": row.op, "context": row.context}
    if is_switch:
        args = {"to client": row.client, "to context": row.context}
    args |= {"kind": row.kind, "sms": row.sms, "bytes": row.bytes}
    trace.slice(pid, tid, row.label, start_ns=row.start_ns, end_ns=row.end_ns, args=args)


def _note_engine(engines: dict[tuple[int, str], Buckets], row: Row) -> None:
    if row.kind == "kernel":
        name, level = "SMs in use", float(row.sms)
    elif row.kind in COPY_ENGINES:
        name, level = COPY_ENGINES[row.kind], 1.0
    else:
        return
    engines.setdefault((row.gpu, name), Buckets()).add(row.start_ns, row.end_ns, level)


def _write_counter(trace: TraceWriter, pid: int, name: str, buckets: Buckets) -> None:
    trace.process(pid, f"GPU {pid - _FIRST_GPU}", order=pid)
    before = None
    for i, level in enumerate([*buckets.levels(), 0.0]):
        value = round(level, 3)
        if value != before:
            trace.counter(pid, name, (buckets.begin_ns or 0) + i * buckets.width_ns, value)
        before = value
