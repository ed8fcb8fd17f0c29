"""Jobs on their own sets of SMs: where their kernels run, and that they can be moved live."""

import os
import random
import signal
from functools import partial

import pytest
from bench.partition_sets import sms_of
from running_job import start_together, until

from tandem import _set_probe

ROUNDS = int(os.environ.get("TANDEM_SET_ROUNDS", "5"))  # a benchmark asks for more
SPREADING = "__import__('spreading')"


def started(fresh_place, mode):
    fresh_place.env |= {"TANDEM_SOFTGPU_MODE": "mps", "TANDEM_SOFTGPU_PROFILE": "h200"}
    config = fresh_place.folder / "config.toml"
    config.write_text(f'[gpu."*"]\nmode = "{mode}"\n')
    fresh_place.start_daemon("--config", str(config))
    return fresh_place


@pytest.fixture
def place(fresh_place, mode):
    return started(fresh_place, mode)


@pytest.fixture
def mode():
    return "mps+green"


def working(place, name, *options, **how):
    job = place.job(name, "-p", "latency", *options)
    words = "".join(f", {key}={value}" for key, value in how.items())
    job.do(f"{SPREADING}.begin(gpu{words})")
    return job


def used(place, job, since_ns=0, name="vadd"):
    """Return the SMs on which kernels of the job began since then."""
    rows = [row for row in place.ran(job.pid) if row["kind"] == "kernel" and name in row["name"]]
    return set().union(*(sms_of(row["sm_set"]) for row in rows if row["t_start_ns"] >= since_ns))


def explains(place, name, told):
    """Tell whether it says so by now; a job reports its streams when it next checks them."""
    return told in place.explain(name)


def test_kernels_stay_in_their_sets(place):
    jobs = [
        working(place, "half", "--sm", "50%"),
        working(place, "quarter", "--sm", "32"),
        working(place, "rest"),
    ]

    start_together(dict.fromkeys(jobs, f"{SPREADING}.run(5)"))
    assert all(job.result() for job in jobs)

    half, quarter, rest = (used(place, job) for job in jobs)
    assert (len(half), len(quarter), len(rest)) == (64, 32, 32)
    assert len(half | quarter | rest) == 128
    with place.client() as client:
        told = {job.display_name: job for job in client.jobs()}
    assert {job.mode for job in told.values()} == {"mps+green"}
    groups = {name: job.set_groups for name, job in told.items()}
    assert {name: len(found) for name, found in groups.items()} == {
        "half": 8,
        "quarter": 4,
        "rest": 4,
    }
    assert sorted(sum(groups.values(), ())) == list(range(16))
    assert {job.set_group_sms for job in told.values()} == {8}


@pytest.mark.parametrize("mode", ["mps", "mps+green"])
def test_with_percentages_they_share_sms_and_with_sets_they_do_not(place, mode):
    jobs = [working(place, "a", "--sm", "75%"), working(place, "b", "--sm", "75%")]

    start_together(dict.fromkeys(jobs, f"{SPREADING}.run(5)"))
    assert all(job.result() for job in jobs)

    assert bool(used(place, jobs[0]) & used(place, jobs[1])) is (mode == "mps")
    wanted = ("mps", 99, True) if mode == "mps" else ("mps+green", 64, False)
    with place.client() as client:
        until(
            lambda: (
                {(job.mode, job.sms, job.set_groups is None) for job in client.jobs()} == {wanted}
            ),
            what=f"both are told to have {wanted}",
        )


def test_a_set_is_changed_while_its_job_runs(place):
    first, second = working(place, "a", "--sm", "50%"), working(place, "b", "--sm", "50%")
    for job in (first, second):
        job.do(f"{SPREADING}.submit(20)")

    place.tandem("set", "a", "sm=75%")
    place.tandem("set", "b", "sm=25%")
    at_ns = first.do("now_ns()") + 50_000_000
    first.do("waiting.pause(60)")
    start_together(dict.fromkeys((first, second), f"{SPREADING}.run(20)"))

    assert all(job.result() for job in (first, second))
    assert (len(used(place, first, at_ns)), len(used(place, second, at_ns))) == (96, 32)
    assert not used(place, first, at_ns) & used(place, second, at_ns)
    assert len(used(place, first)) == 96


def test_what_stays_on_the_whole_gpu_is_named(place):
    job = working(place, "a", "--sm", "25%")
    job.do(f"{SPREADING}.run(1)")
    job.do(f"{SPREADING}.begin(gpu, flags=0)")
    job.do(f"{SPREADING}.run(1)")
    job.do("compute()")

    for told in (
        "its set is 32 SMs: groups 0 to 3 of 8 SMs each, for sm 25%",
        "streams in it: 2",
        "streams on the whole gpu: the legacy default stream; "
        "created without CU_STREAM_NON_BLOCKING: 2",
    ):
        until(partial(explains, place, "a", told), what=f"explain says: {told}")
    assert 'tandem_partition_sm_count{class="latency"' in place.tandem("metrics")
    assert len(used(place, job, name="affine")) > 0


@pytest.mark.parametrize("into", [0, 1])
def test_a_graph_is_on_the_whole_gpu_whatever_it_is_launched_into_and_its_stream_is_not(
    place, into
):
    job = working(place, "a", "--sm", "25%")
    job.do(f"{SPREADING}.run(1)")
    job.do(f"{SPREADING}.capture()")
    told = "graphs on the whole gpu: their kernels stay on the SMs where they were captured"
    assert told not in place.explain("a")

    launched_ns = job.do("now_ns()")
    assert job.do(f"{SPREADING}.replay({into})")
    until(partial(explains, place, "a", told), what="explain says that graphs are outside")

    assert len(used(place, job, launched_ns)) == 132
    again_ns = job.do("now_ns()")
    assert job.do(f"{SPREADING}.run(2)")
    assert len(used(place, job, again_ns)) == 32
    until(partial(explains, place, "a", "streams in it: 2"), what="both streams are back")


def test_a_grid_that_needs_more_sms_than_its_set_has_runs_on_the_whole_gpu(place):
    job = working(place, "a", "--sm", "25%")
    assert job.do(f"{SPREADING}.run(1)")

    job.do(f"{SPREADING}.meet(32)")
    assert len(used(place, job, name="count_up")) == 32
    job.do(f"{SPREADING}.meet(132)")

    assert len(used(place, job, name="count_up")) == 132
    assert job.do(f"{SPREADING}.run(2)")
    until(partial(explains, place, "a", "streams in it: 1"), what="explain says that one left")


def test_settings_are_copied_from_stream_to_stream(place):
    job = working(place, "a", "--sm", "25%")
    job.do(f"{SPREADING}.run(1)")

    assert job.do(f"{SPREADING}.copied_setting()")


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("none", "the driver does not support cuGreenCtxCreate"),
        ("shared", _set_probe.SHARED),
    ],
)
def test_without_proof_jobs_get_static_percentages(fresh_place, setting, why):
    fresh_place.env |= {"TANDEM_SOFTGPU_GREEN": setting}
    place = started(fresh_place, "mps+green")

    job = working(place, "a", "--sm", "50%")

    assert job.do(f"{SPREADING}.run(2)")
    assert {row["sms"] for row in place.ran(job.pid) if "vadd" in row["name"]} == {66}
    assert f"mode mps+green is not available on gpu 0, which is in mode mps: {why}" in (
        place.explain("a")
    )
    assert why in (place.folder / "log").read_text()


def test_random_work_comes_out_right_while_sets_change(place):
    first, second = working(place, "a", "--sm", "50%"), working(place, "b")
    chance = random.Random(8)

    with place.client() as client:
        for seed in range(ROUNDS):
            for job in (first, second):
                job.start(f"{SPREADING}.mixed(gpu, {seed})")
            client.set("a", sm=f"{chance.randint(1, 15) * 100 // 16}%")
            assert [job.result() for job in (first, second)] == [True, True], f"seed {seed}"

    assert used(place, first, name="affine")


def test_who_came_before_there_were_sets_has_none_and_is_told_so(fresh_place):
    place = started(fresh_place, "mps")
    early = working(place, "early")
    (place.folder / "config.toml").write_text('[gpu."*"]\nmode = "mps+green"\n')
    place.daemon.send_signal(signal.SIGHUP)
    until(lambda: "mode mps+green" in place.tandem("partition", "show"), what="sets")
    late = working(place, "late")
    start_together(dict.fromkeys((early, late), f"{SPREADING}.run(5)"))
    assert all([early.result(), late.result()])

    with place.client() as client:
        found = {job.display_name: job for gpu in client.partitions() for job in gpu.jobs}
        told = client.explain("early")
    assert (found["early"].proposed_sms, found["early"].given_sms) == (0, 132)
    assert "restart it to give it one" in found["early"].why_no_set
    assert found["late"].why_no_set == ""
    assert "it has no set of SMs: it was running before" in " ".join(told.lines)
    assert "early" in place.tandem("partition", "show")
    until(lambda: len(used(place, late)) == 128, what="kernels in a set")
    assert len(used(place, early)) == 132


def test_without_its_daemon_a_job_stays_in_its_set_and_goes_on_with_the_next(place):
    job = working(place, "a", "--sm", "25%")
    assert job.do(f"{SPREADING}.run(2)")
    was = used(place, job)

    place.stop_daemon(signal.SIGKILL)
    assert job.do(f"{SPREADING}.run(2)")
    assert used(place, job) == was
    place.start_daemon("--config", str(place.folder / "config.toml"))
    until(lambda: place.lists("a"), what="it is back")
    place.tandem("set", "a", "sm=50%")

    assert job.do(f"{SPREADING}.run(2)")
    assert len(used(place, job)) == 2 * len(was)


def test_where_the_next_daemon_asks_for_no_sets_a_job_leaves_that_of_the_last(place):
    job = working(place, "a", "--sm", "25%")
    assert job.do(f"{SPREADING}.run(2)")
    assert len(used(place, job)) == 32

    place.stop_daemon()
    assert started(place, "mps")

    until(lambda: place.lists("a"), what="it is back")
    until(
        lambda: job.do(f"{SPREADING}.run(2)") and len(used(place, job)) == 132,
        what="it has the whole device",  # the daemon says so a round after it is back
    )
