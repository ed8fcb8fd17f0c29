"""What a sampled launch costs the job: launches of a kernel with eight parameters, sampled and not.

The same process launches before, during and after a sample, to show that a sample leaves no cost
behind. The check that no sample is wanted, a bit of a word that is read anyway, is part of the
measurement `launch`. Used by `bench/dag.py`, which has the bars; `python -m bench.dag_sample`
prints the figures alone.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from bench.bars import progress, show, smallest_median
from bench.one_job_daemon import LONG_SEGMENT_NS, OneJob, Treatment, listening, one_job
from bench.stage import NotMeasuredError, Stage, expect, read_round, stage, tell

ROUNDS = 4
GROUPS = 160  # of 32 launches
SAMPLED = 32 * GROUPS
LIMIT_NS = 5_000
BETWEEN_LIMIT_RATIO = 1.1  # of a launch after a sample to one before: allows for noise only
PATIENCE_S = 10.0


def figures(place: Stage) -> dict[str, float]:
    """Measure ns per launch before, during and after a sample, and differences; on one CPU.

    Raises:
        NotMeasuredError: the job was not sampled.
    """
    rounds: dict[str, list[list[float]]] = defaultdict(list)
    with _one_cpu_aside() as cpu, place.device():
        for number in range(1, ROUNDS + 1):
            progress(f"launches before, during and after a sample, round {number} of {ROUNDS}")
            _round(place, cpu, rounds)
    before, sampled, after = (smallest_median(rounds[n]) for n in ("before", "sampled", "after"))
    return {
        "plain_ns": before,
        "sampled_ns": sampled,
        "sample_added_ns": sampled - before,
        "between_samples_ratio": after / before,
    }


def _round(place: Stage, cpu: int, rounds: dict[str, list[list[float]]]) -> None:
    treatment = Treatment(segment_ns=LONG_SEGMENT_NS, has_peer=False)
    command = [place.compile("sample.cpp"), place.kernels(), GROUPS, cpu]
    with (
        listening(place.attach_socket) as listener,
        place.running([str(word) for word in command], place.shimmed()) as child,
        one_job(listener, treatment) as job,
    ):
        expect(child, "ready")
        tell(child)
        expect(child, "ready")
        number = job.poller.begin_sample(process_id=1, launches=SAMPLED, timeout_ns=60 * 10**9)
        tell(child)
        expect(child, "ready")
        _check(job, number)
        tell(child)
        read_round(child, rounds)


def _check(job: OneJob, number: int) -> None:
    end = time.monotonic() + PATIENCE_S
    while (found := job.poller.take_sample(process_id=1, number=number)) is None:
        if time.monotonic() > end:
            raise NotMeasuredError("the sample did not end: launches were not sampled")
        time.sleep(0.01)
    if found.lost:
        raise NotMeasuredError(f"{found.lost} of {SAMPLED} launches were lost")


@contextmanager
def _one_cpu_aside() -> Iterator[int]:
    """Reserve a CPU that nothing else in the measurement uses, if there are several."""
    cpus = os.sched_getaffinity(0)
    if len(cpus) > 1:
        os.sched_setaffinity(0, cpus - {max(cpus)})
    yield max(cpus)
    os.sched_setaffinity(0, cpus)


if __name__ == "__main__":
    with stage() as place:
        show(figures(place), "ns")
