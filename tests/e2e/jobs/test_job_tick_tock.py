"""Trainers whose memory does not fit together take turns, and finish with every byte right."""

from itertools import pairwise

import pytest
from running_job import until

pytestmark = pytest.mark.slow

MIB = 1 << 20
FILLED = 950  # MiB of the device's 1024: the rest is what the trainers share
ITERATIONS = 3


def trainers(place, megabytes, *options):
    """A job for each figure, with so much memory: taken one after the other."""
    place.job("filler").do(f"int(alloc({FILLED * MIB}))")
    jobs = {}
    for seed, size in enumerate(megabytes, 1):
        job = jobs[f"t{seed}"] = place.job(f"t{seed}", *options)
        job.do("exec('import alternating', globals())")
        job.start(f"globals().__setitem__('t', alternating.Trainer(gpu, {size}, {seed}))")
        yield job


def test_two_trainers_of_which_one_would_run_out_of_memory_both_finish(place):
    jobs = list(trainers(place, (34, 34), "--swappable"))
    assert [job.result() for job in jobs] == [None, None]
    for job in jobs:
        job.start(f"t.train({ITERATIONS})")
    with place.client() as client:
        until(lambda: "passing its turn on takes" in explained(client), what="it is explained")
    assert all(begin < end for begin, end in (job.result() for job in jobs))
    assert [job.do("t.is_right()") for job in jobs] == [True, True]

    ran = {job.pid: place.ran(job.pid) for job in jobs}
    assert turns(ran) >= 4, "they alternate"


def test_without_permission_one_of_them_dies(place):
    first, second = trainers(place, (34, 34))
    assert first.result() is None
    with pytest.raises(AssertionError, match="'t2' ended with code 1"):
        second.result()


def explained(client):
    return "; ".join(line for name in ("t1", "t2") for line in client.explain(name).lines)


def turns(ran):
    """How often the GPU changed hands."""
    rows = [(row["t_start_ns"], pid) for pid, rows in ran.items() for row in rows if is_kernel(row)]
    return sum(one != other for (_, one), (_, other) in pairwise(sorted(rows)))


def is_kernel(row):
    return row["kind"] == "kernel"
