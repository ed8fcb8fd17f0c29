import pytest
from watched import MS, SECOND, Watched, facts

from tandemd.core.model import WaitReason
from tandemd.core.watchdog.rules.launch_bound import LaunchBound
from tandemd.core.watchdog.rules.starvation import Starvation

# It is owed a third of each second.


def waiter(**figures):
    held = {"waiting": frozenset({WaitReason.GATE}), "gate_open": False, "rivals": 2}
    return Watched(Starvation(), **held, **figures)


OWED = {"held_back_ns": SECOND, "owed_ns": SECOND / 3}


def test_a_job_that_gets_a_tenth_of_what_it_is_owed_starves():
    found = waiter().goes_on(10, served_ns=33 * MS, **OWED).find()

    assert "3.3% of the gpu in 10 s, but was owed 33.3%; other jobs that want it: 2" in found.what
    assert facts(found)["got_ns"] == 330 * MS


@pytest.mark.parametrize(
    "second",
    [
        {**OWED, "served_ns": 200 * MS},  # more than half of what it is owed
        {"held_back_ns": 400 * MS, "owed_ns": SECOND / 3},  # it was mostly busy otherwise
        {"held_back_ns": SECOND},  # nothing is promised: fifo, or it is the only job
        {**OWED, "served_ns": -1},  # its group was merged into another
    ],
)
def test_less_is_no_starvation(second):
    assert waiter().goes_on(30, **second).find() is None


def test_nine_seconds_are_too_few():
    assert waiter().goes_on(9, **OWED).find() is None


def test_a_paused_job_does_not_starve():
    assert waiter(paused=True).goes_on(30, **OWED).find() is None


def test_starvation_lasts_until_it_gets_clearly_more():
    job = waiter().goes_on(20, served_ns=200 * MS, **OWED)

    assert job.find() is None
    assert job.find(standing=True) is not None
    assert job.goes_on(20, served_ns=300 * MS, **OWED).find(standing=True) is None


# It keeps the GPU busy all the time with kernels of 5 us.

SMALL = {
    "exclusive_ns": SECOND,
    "launches": 40_000,
    "timed_count": 40_000,
    "work_ns": 40_000 * 5_000,
}


def test_small_kernels_that_fill_a_fifth_of_their_time_are_launch_bound():
    found = Watched(LaunchBound()).goes_on(10, **SMALL).find()

    assert "40,000 kernels a second of 5 us each, which fill 20%" in found.what
    assert facts(found)["filled_ratio"] == pytest.approx(0.2)


def test_what_it_did_alone_long_ago_says_nothing_of_now():
    job = Watched(LaunchBound()).goes_on(60, **SMALL | {"work_ns": SECOND})

    assert job.goes_on(30, **SMALL | {"shared_ns": SECOND}).find() is None


@pytest.mark.parametrize(
    "second",
    [
        SMALL | {"work_ns": 600 * MS},  # its kernels fill the GPU
        SMALL | {"exclusive_ns": 300 * MS},  # it waits for its data
        SMALL | {"held_back_ns": 300 * MS},  # the daemon holds it back
        SMALL | {"shared_ns": SECOND},  # other jobs share the GPU with it
        SMALL | {"timed_count": 10_000},  # not measured, or telemetry was lost
        {"exclusive_ns": SECOND, "launches": 10, "timed_count": 10, "work_ns": 20 * MS},  # large
        {},  # idle
    ],
)
def test_other_jobs_are_not_launch_bound(second):
    assert Watched(LaunchBound()).goes_on(30, **second).find() is None
