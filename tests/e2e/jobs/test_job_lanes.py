"""The policy `lanes`: jobs whose peaks do not fit together share the GPU or wait for admission."""

import re
import subprocess
import sys

import pytest
from running_job import start_together, until
from test_job_pairs import overlap_ns

MIB = 1 << 20
P, E = 100 * MIB, 500 * MIB  # three P and one E fit into the device's 1 GiB, two E do not
ASKED = ("--persistent", f"{P + MIB}", "--ephemeral", f"{E + MIB}")
COUNT = 3
ROUNDS = 15
CONTEXT = 8 * MIB  # what a process occupies on the device before it asks for anything
IMPORT = "exec('from iterating import Training, refusal', globals())"


def training(job, persistent=P, ephemeral=E):
    job.do(IMPORT)
    job.do(f"exec('t = Training(gpu, {persistent}, {ephemeral})', globals())")


@pytest.fixture
def lanes(fresh_place):
    def start(order="fifo", **options):
        words = fresh_place.configured(policy='"lanes"', lane_order=f'"{order}"', **options)
        fresh_place.start_daemon(*words)
        return fresh_place

    return start


def test_under_the_default_policy_the_second_iteration_finds_no_memory(place):
    first, second = place.job("first", *ASKED), place.job("second", *ASKED)
    for job in (first, second):
        training(job)
    first.do("t.begin()")

    assert "OUT_OF_MEMORY" in second.do("refusal(t.begin)")
    assert first.do("t.end()") is True


@pytest.mark.parametrize("asked", [ASKED, ()], ids=["promised", "unknown"])
def test_three_jobs_that_do_not_fit_together_all_finish(lanes, asked):
    place = lanes()
    jobs = [place.starting(name, *asked) for name in ("a", "b", "c")]
    for job in jobs:
        job.start(IMPORT)
        job.start(f"exec('t = Training(gpu, {P}, {E})', globals())")
        job.start(f"t.run({COUNT})")
        job.start("t.ledger")
    ledgers = []
    for job in jobs:
        told = [job.result() for _ in range(5)]
        assert told[0] == "ready"
        assert told[3] is True
        ledgers += told[4]

    assert max(ledgers) <= 3 * (P + CONTEXT) + E + MIB  # one iteration at a time
    assert all(job.end() == 0 for job in jobs)


def test_an_iteration_waits_for_the_end_of_another_in_its_lane(lanes):
    place = lanes()
    first = place.job("first", *ASKED)
    training(first)
    first.do("t.begin()")
    second = place.starting("second", *ASKED)
    with place.client() as client:
        until_told(client, second, "waits for its next iteration")
        assert client.job("second").state == "waiting"

    assert first.do("t.end()") is True

    assert second.result() == "ready"
    training(second)
    assert second.do("t.run(2)") is True


def test_a_lane_goes_to_who_came_first_of_those_who_wait(lanes):
    place = lanes()
    first = place.job("a", *ASKED)
    training(first)
    first.do("t.begin()")
    others = []
    with place.client() as client:
        for name in ("b", "c"):
            others.append(place.starting(name, *ASKED))
            others[-1].start(IMPORT)
            others[-1].start(f"exec('t = Training(gpu, {P}, {E})', globals())")
            others[-1].start("t.run(1)")
            until_told(client, others[-1], "waits for its next iteration")

    assert first.do("t.end()") is True
    assert [[job.result() for _ in range(4)][-1] for job in others] == [True, True]

    assert iterations(place) == ["a", "b", "c"]


def test_two_that_share_a_lane_take_turns_to_the_end(lanes):
    place = lanes("fair")
    first = place.job("a", *ASKED)
    training(first)
    first.do("t.begin()")
    second = place.starting("b", *ASKED)
    second.start(IMPORT)
    second.start(f"exec('t = Training(gpu, {P}, {E})', globals())")
    second.start(f"t.run({ROUNDS})")
    with place.client() as client:
        until_told(client, second, "waits for its next iteration")

    first.start("t.end()")
    first.start(f"t.run({ROUNDS})")
    assert [first.result() for _ in range(2)] == [True, True]
    assert [second.result() for _ in range(4)][-1] is True

    turns = "".join(iterations(place))
    while_both = turns[: 1 + min(turns.rindex("a"), turns.rindex("b"))]
    assert max(map(len, re.findall("a+|b+", while_both))) < ROUNDS // 2  # nobody starves


@pytest.mark.parametrize("share_a_lane", [False, True])
def test_lanes_run_side_by_side_where_kernels_of_two_jobs_can(fresh_place, lanes, share_a_lane):
    fresh_place.env["TANDEM_SOFTGPU_MODE"] = "mps"
    place = lanes()
    asked = promise(60, 800 if share_a_lane else 200)
    both_are_there, jobs, come = place.folder / "both are there", [], []
    for name in ("a", "b"):  # one after the other: the first to come has the lane
        jobs.append(job := place.starting(name, *asked))
        job.start(IMPORT)
        job.start(f"exec('t = Training(gpu, {50 * MIB}, {100 * MIB})', globals())")
        if share_a_lane and name == "a":  # the other comes in when an iteration of this ends
            job.start(f"t.run_until({str(both_are_there)!r})")
        come.append([job.result() for _ in range(3)])
    both_are_there.touch()
    if share_a_lane:
        for job in jobs:
            job.start("t.run(10)")
        assert jobs[0].result() is True
    else:
        start_together(dict.fromkeys(jobs, "t.run(10)"))
    assert come == [["ready", None, None]] * 2
    assert [job.result() for job in jobs] == [True, True]

    ran = {job.name: [k for k in place.ran(job.pid) if k["kind"] == "kernel"] for job in jobs}
    assert (overlap_ns(ran, "a", "b") == 0) is share_a_lane


def until_told(client, job, words):
    def told():
        found = [one for one in client.jobs() if job.pid in [p.pid for p in one.processes]]
        return any(words in one.reason and one.state == "waiting" for one in found)

    until(told, what=f"{job.name} {words}")


def promise(persistent_mib, ephemeral_mib):
    return "--persistent", f"{persistent_mib}MiB", "--ephemeral", f"{ephemeral_mib}MiB"


def iterations(place):
    """Return the names of the jobs whose iterations ran, in their order."""
    names = {job.pid: job.name for job in place.jobs}
    ran = [one for job in place.jobs for one in place.ran(job.pid)]
    ran = [one for one in ran if one["name"] == "slow_affine"]
    return [names[one["pid"]] for one in sorted(ran, key=lambda one: one["t_start_ns"])]


@pytest.mark.slow
@pytest.mark.parametrize(("order", "first"), [("fifo", "x"), ("srtf", "y"), ("pack", "z")])
def test_the_order_says_who_comes_first_when_there_is_room(lanes, order, first):
    place = lanes(order)
    before = place.job("y")  # makes its duration known; nothing is known of the others
    assert before.end() == 0
    holder = place.job("holder", *promise(900, 1))
    jobs = []
    with place.client() as client:
        for name, sizes in (("x", (500, 50)), ("y", (500, 50)), ("z", (500, 200))):
            jobs.append(place.starting(name, *promise(*sizes)))
            jobs[-1].start(IMPORT)
            jobs[-1].start(f"exec('t = Training(gpu, {P}, {MIB})', globals())")
            jobs[-1].start("t.run(1)")
            until_told(client, jobs[-1], "in line to come onto the gpu")

    assert holder.end() == 0
    until(lambda: iterations(place), what="somebody runs an iteration")

    assert iterations(place) == [first]


def test_a_job_that_is_not_to_wait_is_refused_where_it_would_stand_in_line(lanes):
    place = lanes()
    first = place.job("first", *promise(600, 300))

    def start(*options):
        words = [sys.executable, "-m", "tandem.cli", "run", "--require", *options, *promise(400, 1)]
        return subprocess.run(
            [*words, "--", "/bin/true"], env=place.env, capture_output=True, text=True, check=False
        )

    refused = start("--no-wait")
    assert refused.returncode == 75
    assert "it would stand in line: no gpu has room for 400 MiB for good" in refused.stderr
    assert start().returncode == 0
    assert first.end() == 0
    until(lambda: start("--no-wait").returncode == 0, what="there is room")
