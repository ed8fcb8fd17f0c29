import random

import pytest
from watched import MIB, SECOND, Watched, facts

from tandemd.core.watchdog.rules.leak import Leak, slope

GIB = 1 << 30


def trainer(**figures):
    return Watched(Leak(), device_bytes=GIB, iteration_bytes=GIB, iterations=1, **figures)


def grows(job, *steps_bytes):
    """For each step, ten iterations after which the job holds so much more."""
    for step in steps_bytes:
        job.goes_on(1, iterations=10, device_bytes=step, iteration_bytes=step)
    return job


def test_memory_that_grows_with_every_iteration_is_found_with_its_end():
    leaking = grows(trainer(room_bytes=200 * MIB), *[10 * MIB] * 30)

    found = leaking.find()

    assert facts(found)["bytes_per_iteration"] == MIB
    assert facts(found)["full_in_s"] == pytest.approx(20)
    assert "1 MiB an iteration" in found.what
    assert "200 iterations, 20 s" in found.what


def test_the_steps_of_a_caching_allocator_count_as_growth():
    leaking = grows(trainer(), *[20 * MIB, 0, 0] * 12)

    assert facts(leaking.find())["bytes_per_iteration"] == pytest.approx(20 / 30 * MIB, rel=0.1)


@pytest.mark.parametrize(
    "steps",
    [
        [0] * 40,
        [200 * MIB] * 5 + [0] * 35,  # a warm-up
        [int(400 * MIB * 0.9**i) for i in range(40)],  # growth that levels off
        [64 * MIB, -64 * MIB] * 20,  # evaluation in between
        [0] * 20 + [GIB] + [0] * 20,  # one step: a second model
        [2 * MIB] * 30,  # hardly any growth
    ],
)
def test_ordinary_memory_is_no_leak(steps):
    assert grows(trainer(), *steps).find() is None


def test_changing_shapes_whose_records_get_rare_are_no_leak():
    dice, largest, findings = random.Random(5), 0, 0
    job = trainer()
    for _ in range(300):
        record = max(largest, dice.randrange(2 * GIB))
        grows(job, record - largest)
        largest = record
        findings += job.find() is not None

    assert findings == 0


def test_one_look_short_of_the_points_it_needs_says_nothing():
    assert grows(trainer(), *[10 * MIB] * 23).find() is None
    assert grows(trainer(), *[10 * MIB] * 24).find() is not None


def test_it_is_over_when_the_memory_is_given_back():
    job = grows(trainer(), *[10 * MIB] * 30)

    job.goes_on(1, device_bytes=-250 * MIB)

    assert job.find(standing=True) is None


def test_it_is_over_when_memory_grows_no_more():
    job = grows(trainer(), *[10 * MIB] * 30)

    assert grows(job, *[0] * 30).find(standing=True) is None


def test_a_day_of_iterations_is_kept_in_few_points():
    job = grows(trainer(), *[MIB] * 5000)

    assert len(job.history.ends.points) < 64
    assert facts(job.find())["bytes_per_iteration"] == pytest.approx(MIB / 10)
    assert job.find().since_ns < job.look.now_ns - 1000 * SECOND


def test_the_slope_does_not_follow_outliers():
    line = [(float(x), 3.0 * x) for x in range(20)]

    assert slope([*line, (20.0, 1e9)]) == pytest.approx(3.0)
    assert slope(line[:1]) == 0
