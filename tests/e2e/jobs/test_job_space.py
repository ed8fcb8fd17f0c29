"""`--sm` and `--isolation` through the whole path, on the virtual clock."""

import json

import pytest
from running_job import until

SMS = 8  # of the profile `tiny`
SPAN_NS = 400_000_000


@pytest.fixture
def place(fresh_place):
    fresh_place.start_daemon(*fresh_place.configured(policy='"fair"'))
    return fresh_place


def computing(place, name, *options):
    job = place.job(name, "-p", "batch", *options)
    job.start("for_ever(lambda: waiting.short(gpu))")
    job.result()
    return job


def part_of(place, job, other):
    """Return the job's part of the GPU time of both, over a span that begins when both run."""

    def ran(which):
        return [k for k in place.ran(which.pid) if k["kind"] == "kernel"]

    since_ns = max(ran(which)[-1]["t_end_ns"] for which in (job, other))
    until_ns = since_ns + SPAN_NS
    until(lambda: any(k["t_end_ns"] > until_ns for k in ran(job)), what="a span of time")

    def time_ns(which):
        inside = [k for k in ran(which) if since_ns <= k["t_start_ns"] < until_ns]
        return sum(k["t_end_ns"] - k["t_start_ns"] for k in inside)

    return time_ns(job) / (time_ns(job) + time_ns(other))


def test_gpu_time_goes_by_the_shares_that_jobs_say_and_by_others_once_they_are_set(place):
    job, other = computing(place, "said"), computing(place, "silent")
    equal = part_of(place, job, other)

    place.tandem("set", "said", "sm=6")
    until(lambda: "owed 75%" in place.explain("said"), what="the share is known")
    by_count = part_of(place, job, other)
    place.tandem("set", "said", "sm=20%")
    until(lambda: "owed 20%" in place.explain("said"), what="the share is known")
    by_percent = part_of(place, job, other)

    assert equal == pytest.approx(0.5, abs=0.06)
    assert by_count == pytest.approx(0.75, abs=0.06)
    assert by_percent == pytest.approx(0.2, abs=0.06)


def test_what_was_said_at_the_start_is_shown_everywhere(place):
    computing(place, "said", "--sm", "2", "--isolation", "time")

    (job,) = json.loads(place.tandem("ps", "--json"))
    assert (job["sm_count"], job["share_target_ratio"]) == (2, 0.25)
    assert (job["isolation"], job["mode"]) == ("time", "time")
    assert (
        "sm 2 SMs is a share of time, not of SMs: while it has work, it is owed 25%"
        in place.explain("said")
    )
    metrics = place.tandem("metrics")
    (owed,) = [m for m in metrics.splitlines() if m.startswith("tandem_job_share_target_ratio{")]
    assert owed.endswith(" 0.25")


def test_what_a_share_owes_is_part_of_what_higher_classes_leave(fresh_place):
    place = fresh_place
    place.start_daemon(*place.configured(policy='"priority"'))
    computing(place, "said", "--sm", "50%")

    def told():
        jobs = json.loads(place.tandem("ps", "--json"))
        return next(job for job in jobs if job["display_name"] == "said")

    until(lambda: told()["share_target_ratio"] == 0.5, what="it is known to be alone")
    place.job("urgent").go_on("lambda: waiting.short(gpu)")
    until(lambda: told()["share_target_ratio"] < 0.1, what="the other one's work is seen")

    assert told()["share_target_ratio"] > 0
    assert "owed 50%" in place.explain("said")


def test_a_job_that_asks_for_what_no_gpu_has_is_not_started(place):
    too_many = place.refused("--require", "--sm", "9")
    on_the_first = place.refused("--require", "--sm", "9", "-i", "0")
    other_mode = place.refused("--require", "--isolation", "mps")
    not_there = place.refused("--require", "--isolation", "mps+green")

    assert too_many[0] == other_mode[0] == not_there[0] == 125
    assert f"not started: it asks for 9 SMs, but gpu 0 has {SMS}; ask for fewer" in too_many[1]
    assert on_the_first == too_many
    assert "it asks for isolation mps, but gpu 0 is in mode time" in other_mode[1]
    assert "it asks for isolation mps+green, but gpu 0 is in mode time" in not_there[1]


def test_more_sms_than_there_are_cannot_be_set_either(place):
    place.job("said")

    with pytest.raises(AssertionError, match="asks for 9 SMs, but gpu 0 has 8"):
        place.tandem("set", "said", "sm=9")


def test_a_job_that_asks_for_mps_starts_where_there_is_mps(fresh_place):
    fresh_place.env["TANDEM_SOFTGPU_MODE"] = "mps"
    fresh_place.start_daemon()

    fresh_place.job("side-by-side", "--isolation", "mps")

    (job,) = json.loads(fresh_place.tandem("ps", "--json"))
    assert (job["isolation"], job["mode"]) == ("mps", "mps")
    assert (
        "isolation time, but gpu 0 is in mode mps"
        in fresh_place.refused("--require", "--isolation", "time")[1]
    )
