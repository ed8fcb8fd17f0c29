import pytest
from watched import MS, SECOND, Watched

from tandemd.core.watchdog.rules.thrash import Thrash


def contested(**figures):
    return Watched(Thrash(), rivals=2, **figures)


TURNS = {"turns": 40, "island_served_ns": 700 * MS, "iterations": 4}


def test_turns_that_lose_a_third_of_the_time_thrash():
    job = contested(quantum_ns=10 * MS).goes_on(10, **TURNS)

    assert "40 turns a second, and an iteration takes 250 ms; 30%" in job.find().what


@pytest.mark.parametrize(
    ("figures", "second"),
    [
        ({"quantum_ns": 10 * MS}, TURNS | {"island_served_ns": 900 * MS}),
        ({"quantum_ns": 10 * MS}, TURNS | {"turns": 5}),
        ({"quantum_ns": 300 * MS}, TURNS),  # longer than an iteration
        ({"quantum_ns": 10 * MS, "paused": True}, TURNS),
        ({"quantum_ns": 10 * MS}, TURNS | {"island_served_ns": -SECOND}),  # a group left
    ],
)
def test_other_turns_do_not(figures, second):
    assert contested(**figures).goes_on(30, **second).find() is None


def test_that_it_thrashes_is_over_only_with_clearly_fewer_turns():
    job = contested(quantum_ns=10 * MS).goes_on(10, **TURNS)
    fewer = TURNS | {"turns": 8}

    assert job.goes_on(20, **fewer).find() is None
    assert job.find(standing=True)
    assert job.goes_on(20, **fewer | {"turns": 6}).find(standing=True) is None


def test_turns_without_a_rival_do_not():
    assert Watched(Thrash(), quantum_ns=MS).goes_on(30, **TURNS).find() is None


def test_allocations_in_every_iteration_thrash():
    found = Watched(Thrash()).goes_on(10, iterations=10, alloc_count=200).find()

    assert "200 times a second, 20 times an iteration" in found.what


@pytest.mark.parametrize("second", [{"iterations": 100, "alloc_count": 200}, {"alloc_count": 40}])
def test_few_allocations_do_not(second):
    assert Watched(Thrash()).goes_on(30, **second).find() is None


def test_a_warm_up_full_of_allocations_is_over_soon():
    job = Watched(Thrash()).goes_on(3, alloc_count=5000)

    assert job.find() is None
    assert job.goes_on(20, iterations=10).find() is None
