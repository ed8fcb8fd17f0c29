"""Trainers whose memory does not fit together take turns, and finish with every byte right."""

from itertools import pairwise

import pytest
from running_job import start_together, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

MIB = 1 << 20
FILLED = 950  # MiB of the device's 1024: the trainers share the rest
ITERATIONS = 3


def jobs_beside_a_filler(place, count, *options, filled=FILLED):
    place.job("filler").do(f"int(alloc({filled * MIB}))")
    return [place.job(f"t{seed}", *options) for seed in range(1, count + 1)]


def take(jobs, megabytes):
    """Let each job allocate that much, one after the other."""
    for seed, job in enumerate(jobs, 1):
        job.do("exec('import alternating', globals())")
        job.start(f"globals().__setitem__('t', alternating.Trainer(gpu, {megabytes}, {seed}))")
        assert job.result() is None


def test_two_trainers_of_which_one_would_run_out_of_memory_both_finish(place):
    jobs = jobs_beside_a_filler(place, 2, "--swappable")
    take(jobs, 34)
    start_together(dict.fromkeys(jobs, f"t.train({ITERATIONS})"))
    with place.client() as client:
        until(lambda: "passing its turn on takes" in explained(client), what="it is explained")
    assert all(begin < end for begin, end in (job.result() for job in jobs))
    assert [job.do("t.is_right()") for job in jobs] == [True, True]

    ran = {job.pid: place.ran(job.pid) for job in jobs}
    assert turns(ran) >= 4, "they alternate"


def test_the_host_has_to_hold_no_more_than_what_goes(fresh_place):
    place, size, host = fresh_place, 160, 290
    path = place.folder / "config.toml"
    path.write_text(f'[memory]\nhost_limit = "{host}MiB"\n')
    place.start_daemon("--config", str(path))
    jobs = jobs_beside_a_filler(place, 2, "--swappable", filled=760)
    room = 1024 - place.used_bytes() // MIB
    take(jobs, size)
    assert 2 * (2 * size - room + 32) < host < 2 * size

    for job in jobs + jobs:  # each needs the other, which stays, to make room
        assert job.do("t.train(1)")
    assert [job.do("t.is_right()") for job in jobs] == [True] * 2


def test_the_next_daemon_gives_a_turn_to_who_waits_for_its_memory(fresh_place):
    """The page given to the new daemon does not count a thread that already waited before."""
    place = fresh_place
    place.start_daemon()
    going, waiting = jobs = jobs_beside_a_filler(place, 2, "--swappable")
    take(jobs, 34)
    going.go_on("lambda: t.train(1)")
    waiting.start(f"t.train({ITERATIONS})")
    with place.client() as client:
        until(lambda: is_out(client, "t2"), what="its memory is on the host while it waits")
    place.stop_daemon()

    place.start_daemon()

    assert waiting.result()
    assert waiting.do("t.is_right()")


def is_out(client, name):
    job = next(job for job in client.jobs() if job.display_name == name)
    return job.state == "waiting" and job.swapped_bytes > 0


def test_without_permission_one_of_them_dies(place):
    jobs = jobs_beside_a_filler(place, 2)
    with pytest.raises(AssertionError, match="'t2' ended with code 1"):
        take(jobs, 34)


def test_what_fits_beside_the_one_that_computes_moves_meanwhile(place):
    size = 26
    jobs = jobs_beside_a_filler(place, 3, "--swappable")
    room = 1024 * MIB - place.used_bytes()
    take(jobs, size)
    start_together(dict.fromkeys(jobs, f"t.train({ITERATIONS})"))
    for job in jobs:
        job.result()
    assert [job.do("t.is_right()") for job in jobs] == [True] * 3

    ran = {job.pid: place.ran(job.pid) for job in jobs}
    kernels = [row for rows in ran.values() for row in rows if is_kernel(row)]
    first_ns = min(row["t_start_ns"] for row in kernels)
    last_ns = max(row["t_start_ns"] for row in kernels)
    fetched = [
        row
        for rows in ran.values()
        for row in rows
        if row["kind"] == "copy_htod" and first_ns < row["t_start_ns"] < last_ns
    ]
    beside = (room - size * MIB) / (size * MIB)  # part of a turn's fetches that fits
    assert 0.3 < beside < 0.9
    behind_ns = sum(overlap_ns(copy, kernel) for copy in fetched for kernel in kernels)
    assert behind_ns >= 0.5 * beside * sum(map(length_ns, fetched))


def length_ns(row):
    return row["t_end_ns"] - row["t_start_ns"]


def overlap_ns(one, other):
    begin_ns = max(one["t_start_ns"], other["t_start_ns"])
    return max(0, min(one["t_end_ns"], other["t_end_ns"]) - begin_ns)


def explained(client):
    return "; ".join(line for name in ("t1", "t2") for line in client.explain(name).lines)


def turns(ran):
    """Return how often the GPU changed hands."""
    rows = [(row["t_start_ns"], pid) for pid, rows in ran.items() for row in rows if is_kernel(row)]
    return sum(one != other for (_, one), (_, other) in pairwise(sorted(rows)))


def is_kernel(row):
    return row["kind"] == "kernel"
