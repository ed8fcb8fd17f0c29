"""The main job's figures on the virtual clock, where they are the same in every run."""

import statistics
from itertools import pairwise

import pytest

from tandem.demo.measure import Alone, idle_share, latencies_ms
from tandem.demo.settings import TRAINERS
from tandem.demo.stats import percentile

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(300)]

WINDOW_OFF = "version = 1\n[scheduler]\nwindow_segments = 0\n"
LINGER_NOT_TUNED = "version = 1\n[scheduler]\nlinger_max_us = 0\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("budgets")


@pytest.fixture(scope="module")
def alone(lab, folder):
    return lab.run("alone", folder=folder, roles=["server"], managed=False)


@pytest.fixture(scope="module")
def unmanaged(lab, folder):
    return lab.run("unmanaged", folder=folder, managed=False)


@pytest.fixture(scope="module")
def managed(lab, folder):
    return lab.run("tandem", folder=folder)


def p99_ms(outcome):
    return percentile(latencies_ms(outcome.worker("server")), 99)


def share(outcome):
    nothing_needed = Alone(request_ns=0, iteration_ns=dict.fromkeys(TRAINERS, 0.0))
    return idle_share(outcome, nothing_needed)


def mean_queued_ns(outcome):
    """Mean time from begin to result of the requests that arrived before the previous result."""
    items = outcome.worker("server").items
    return statistics.mean(
        after["end_ns"] - after["begin_ns"]
        for before, after in pairwise(items)
        if after["arrival_ns"] < before["end_ns"]
    )


def test_sharing_without_tandem_at_least_doubles_the_servers_p99(alone, unmanaged):
    assert all(w.all_correct for w in unmanaged.workers)
    assert p99_ms(unmanaged) >= 2.0 * p99_ms(alone)


def test_under_tandem_the_servers_p99_stays_near_alone(alone, managed):
    assert all(w.all_correct for w in managed.workers)
    assert p99_ms(managed) <= 1.3 * p99_ms(alone)


def test_under_tandem_the_trainers_get_the_time_the_server_leaves(managed):
    assert share(managed) >= 0.7


def test_the_requests_are_the_same_in_every_scenario(alone, unmanaged, managed):
    arrivals = [
        [item["arrival_ns"] for item in outcome.worker("server").items]
        for outcome in (alone, unmanaged, managed)
    ]

    assert arrivals[0] == arrivals[1] == arrivals[2]
    assert len(arrivals[0]) >= 250


def test_without_the_window_the_servers_p99_is_lost(lab, folder, alone):
    outcome = lab.run("window-off", folder=folder, config=WINDOW_OFF)

    assert all(w.all_correct for w in outcome.workers)
    assert p99_ms(outcome) > 1.3 * p99_ms(alone)


def test_a_server_that_pauses_between_queued_requests_is_waited_for(lab, folder):
    """It pauses longer than the initial linger: untuned, trainers get in before every request."""
    tuned, untuned = (
        lab.run(name, folder=folder, config=config, pause_ns=600_000, seconds=4.0)
        for name, config in (("tuned", ""), ("untuned", LINGER_NOT_TUNED))
    )

    assert all(w.all_correct for outcome in (tuned, untuned) for w in outcome.workers)
    assert mean_queued_ns(tuned) < 0.95 * mean_queued_ns(untuned)
    assert share(tuned) >= 0.7


def test_a_run_alone_repeats_to_the_nanosecond(lab, folder, alone):
    again = lab.run("alone-again", folder=folder, roles=["server"], managed=False)

    assert again.worker("server").items == alone.worker("server").items


def test_a_run_under_tandem_repeats_to_the_nanosecond(lab, folder):
    once, again = (lab.run(f"repeat-{n}", folder=folder, seconds=2.0) for n in (1, 2))

    pairs = zip(_before_anybody_left(once), _before_anybody_left(again), strict=True)
    for first, second in pairs:
        assert [(a, b) for a, b in zip(first, second, strict=False) if a != b][:1] == []
        assert len(first) == len(second)


def _before_anybody_left(outcome):
    # The kernel tears a process down in real time, not in virtual time.
    first_end_ns = min(worker.items[-1]["end_ns"] for worker in outcome.workers)
    return [
        [item for item in worker.items if item["end_ns"] < first_end_ns]
        for worker in outcome.workers
    ]
