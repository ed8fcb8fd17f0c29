"""The share of a core that observing a running job's telemetry takes at 100,000 launches a second.

Used by `bench/dag.py`, which has the bars; `python -m bench.dag_live` prints the figures alone. A
job made for this (dag_live.cpp) replays recorded telemetry of a real program, without its marks,
into its rings as the shim does, and the daemon's poll thread reads it. Rounds alternate between
detecting everything (iterations, phases, gaps, memory, a window of an iteration) and detecting
nothing; of each kind, the smallest CPU time counts. The difference is what the DAG costs.
"""

from __future__ import annotations

import lzma
import os
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bench.bars import progress, show
from bench.one_job_daemon import (
    BATCH_CLASS,
    LATENCY_CLASS,
    OneJob,
    Treatment,
    listening,
    one_job,
)
from bench.stage import CORE, ROOT, NotMeasuredError, Stage, expect, next_line, stage, tell
from tandem import _native
from tandemd.core.model import Usage
from tandemd.observers.structure import Structures

LAUNCHES_PER_S = 100_000
LIMIT_RATIO = 0.02
ROUNDS = 4  # valid rounds needed of each kind
MOST_ROUNDS = 8
WARM_UP_MS = 100
ROUND_MS = 200
LEAST_RATE = 0.9  # of the launches that should be written; a slower round is not valid
MOST_LOST = 0.001  # of the records; a round that loses more is not valid
LOOKS = 2_000
LOOKS_PER_S = 1_000  # the most there can be: the poller makes a round each millisecond
# Stream -> the recording it replays, and the class of its job.
STREAMS = {
    "trainer": ("transformer", BATCH_CLASS),
    "server": ("decoder", LATENCY_CLASS),  # gaps are detected, too
    "aperiodic": ("wanderer", BATCH_CLASS),  # no period is found, so the search covers everything
}
WRITER = (CORE / "ring_writer.cpp", CORE / "wait.cpp")
RECORDED = ROOT / "tests/data/recorded"
RECORD_BYTES, RECORD_KIND, MARK = 64, 8, 11
PROCESS = 1  # the only job's process


def figures(place: Stage) -> dict[str, float]:
    """Measure shares of a core: NAME_on, NAME_off and NAME_added per stream, and python_added.

    Raises:
        NotMeasuredError: a stream had no valid round, with its records written and read in time.
    """
    found: dict[str, float] = {}
    with _ahead_of_others(), listening(place.attach_socket) as listener:
        for name, (recording, job_class) in STREAMS.items():
            progress(f"telemetry of 100,000 launches a second: {name}")
            program = place.compile("dag_live.cpp", *WRITER)
            command = [program, place.attach_socket, _stream(place, recording), LAUNCHES_PER_S]
            shares: dict[bool, list[float]] = defaultdict(list)
            for detects in (False, True) * MOST_ROUNDS:
                if len(shares[detects]) == ROUNDS:
                    continue
                treatment = Treatment(job_class=job_class, has_peer=False, detects=detects)
                with (
                    place.running([str(word) for word in command], place.env) as child,
                    one_job(listener, treatment) as job,
                ):
                    shares[detects] += _round(child, job)
            if not (shares[True] and shares[False]):
                raise NotMeasuredError("the machine is too busy: telemetry came late or was lost")
            on, off = min(shares[True]), min(shares[False])
            found |= {f"{name}_on": on, f"{name}_off": off, f"{name}_added": on - off}
    return {**found, "python_added": _python_share()}


def worst(found: Mapping[str, float]) -> float:
    """The largest share of a core that the DAG adds for a stream, including Python's."""
    added = (found[f"{name}_added"] for name in STREAMS)
    return max(added) + found["python_added"]


@contextmanager
def _ahead_of_others() -> Iterator[None]:
    """Run with real-time priority if allowed; on a busy machine, telemetry would be overwritten."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except PermissionError:
        yield
        return
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def _stream(place: Stage, recording: str) -> Path:
    """Write a recording's records without its marks, so that detection has to do without them."""
    packed = lzma.decompress((RECORDED / f"{recording}.xz").read_bytes())
    records = [packed[i : i + RECORD_BYTES] for i in range(0, len(packed), RECORD_BYTES)]
    path = place.folder / f"{recording}.records"
    path.write_bytes(b"".join(record for record in records if record[RECORD_KIND] != MARK))
    return path


def _round(child: subprocess.Popen[str], job: OneJob) -> list[float]:
    """Measure the poll thread's share of a core; empty if the round was not valid."""
    expect(child, "ready")
    _write(child, WARM_UP_MS)
    (before,) = job.poller.snapshots()
    if before.iteration_ns:  # as Structures does every ten seconds
        job.poller.want_window(process_id=PROCESS)
    cpu_ns, start_ns = _poll_thread_ns(), time.monotonic_ns()
    launches, records = _write(child, ROUND_MS)
    share = (_poll_thread_ns() - cpu_ns) / (time.monotonic_ns() - start_ns)
    (after,) = job.poller.snapshots()
    lost = after.dropped_records - before.dropped_records
    rate = launches / (LAUNCHES_PER_S * ROUND_MS / 1000)
    is_good = rate >= LEAST_RATE and lost <= MOST_LOST * records
    return [share / min(rate, 1)] if is_good else []


def _write(child: subprocess.Popen[str], duration_ms: int) -> tuple[int, int]:
    """Let the job write for that long; return the numbers of launches and records it wrote."""
    tell(child, str(duration_ms))
    words = next_line(child).split()
    if len(words) != 2:
        raise NotMeasuredError("the job that writes telemetry ended")
    return int(words[0]), int(words[1])


def _poll_thread_ns() -> int:
    """The poll thread's CPU time so far, as accounted by the kernel's scheduler."""
    for task in Path("/proc/self/task").iterdir():
        if (task / "comm").read_text().strip() == "tandem-poll":
            return time.clock_gettime_ns(~int(task.name) << 3 | 6)
    raise NotMeasuredError("the poll thread does not run")


def _python_share() -> float:
    """The share of a core for one `Structures.look` a millisecond, at a process with iterations."""
    process = _native.Process(process_id=PROCESS, job_id=1)
    poller = _native.Poller()
    poller.add(process, group=1)
    structures = Structures(poller)
    usage = Usage(process_id=PROCESS, iteration_ns=10_000_000)
    start_ns = time.thread_time_ns()
    for look in range(LOOKS):
        structures.look((usage,), look * 1_000_000_000 // LOOKS_PER_S)
    spent_ns = time.thread_time_ns() - start_ns
    process.close()
    return spent_ns / LOOKS * LOOKS_PER_S / 1e9


if __name__ == "__main__":
    with stage() as place:
        show(figures(place), "of a core")
