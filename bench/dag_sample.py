"""What a sampled launch costs the job: launches of a kernel with eight parameters, sampled and not.

For `bench/dag.py`, which has the bars; `python -m bench.dag_sample` prints the figures alone.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from bench.bars import show, smallest_median
from bench.one_job_daemon import LONG_SEGMENT_NS, OneJob, Treatment, listening, one_job
from bench.stage import NotMeasuredError, Stage, read_round, stage

ROUNDS = 5
GROUPS = 160  # of 32 launches
SAMPLED = 32 * GROUPS
LIMIT_NS = 5_000
PATIENCE_S = 10.0


def figures(place: Stage, cpu: int) -> dict[str, float]:
    """Nanoseconds a launch without and with sampling, and the difference; on one CPU.

    Raises:
        NotMeasuredError: the job was not sampled.
    """
    rounds: dict[str, list[list[float]]] = defaultdict(list)
    with place.device():
        for _ in range(ROUNDS):
            for name in ("plain", "sampled"):
                found: dict[str, list[list[float]]] = defaultdict(list)
                _round(place, cpu, found, sampled=name == "sampled")
                rounds[name] += found["launch"]
    plain, sampled = (smallest_median(rounds[name]) for name in ("plain", "sampled"))
    return {"plain_ns": plain, "sampled_ns": sampled, "sample_added_ns": sampled - plain}


def _round(place: Stage, cpu: int, rounds: dict[str, list[list[float]]], *, sampled: bool) -> None:
    treatment = Treatment(segment_ns=LONG_SEGMENT_NS, has_peer=False)
    command = [place.compile("sample.c"), place.kernels(), GROUPS, cpu]
    with (
        listening(place.attach_socket) as listener,
        place.running([str(word) for word in command], place.shimmed()) as child,
        one_job(listener, treatment) as job,
    ):
        assert child.stdout
        assert child.stdin
        child.stdout.readline()  # ready
        if sampled:
            job.poller.begin_sample(process_id=1, launches=SAMPLED, timeout_ns=60 * 10**9)
        child.stdin.write("\n")
        child.stdin.flush()
        read_round(child, rounds)
        if sampled:
            _check(job)


def _check(job: OneJob) -> None:
    end = time.monotonic() + PATIENCE_S
    while (found := job.poller.take_sample(process_id=1)) is None:
        if time.monotonic() > end:
            raise NotMeasuredError("the sample did not end: launches were not sampled")
        time.sleep(0.01)
    if found.lost:
        raise NotMeasuredError(f"{found.lost} of {SAMPLED} launches were lost")


@contextmanager
def _cpu() -> Iterator[int]:
    cpus = os.sched_getaffinity(0)
    if len(cpus) > 1:
        os.sched_setaffinity(0, cpus - {max(cpus)})
    yield max(cpus)
    os.sched_setaffinity(0, cpus)


if __name__ == "__main__":
    with _cpu() as cpu, stage() as place:
        show(figures(place, cpu), "ns")
