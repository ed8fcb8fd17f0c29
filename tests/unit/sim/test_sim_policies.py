"""What each policy does with the same clients: eight servers with requests of different lengths."""

import pytest
from bench.policies import ALIKE_MS
from bench.policies import CLIENTS as MIXED
from scenes import MS, played, server, trainer, turns

ALIKE = {name: (ms, "latency") for name, ms in ALIKE_MS.items()}


def clients(of, load, objective_ms, duration):
    return [
        server(
            name,
            f"{ms}ms",
            rate=load / len(of) * 1000 / ms,
            duration=duration,
            seed=1,
            slo=f"p99={objective_ms(ms)}ms",
            **{"class": job_class},
        )
        for name, (ms, job_class) in of.items()
    ]


def slowdowns(outcome, of):
    """Return each client's mean request time, divided by what a request computes."""
    return {
        job.name: sum(job.requests_ns) / len(job.requests_ns) / (of[job.name][0] * MS)
        for job in outcome.jobs
        if job.requests_ns
    }


def antt(slowdowns):
    return sum(slowdowns.values()) / len(slowdowns)


def stp(slowdowns):
    return sum(1 / slowdown for slowdown in slowdowns.values())


@pytest.fixture(scope="module")
def mixed():
    jobs = clients(MIXED, 0.7, lambda ms: 8 * ms, "4s")
    compared = ("fifo", "priority", "token")
    outcomes = {policy: played(*jobs, policy=policy, segment_us=1000) for policy in compared}
    return {policy: slowdowns(outcome, MIXED) for policy, outcome in outcomes.items()}


def test_under_token_requests_are_slowed_down_less_on_average(mixed):
    assert antt(mixed["token"]) < min(antt(mixed["fifo"]), antt(mixed["priority"]))


def test_under_token_the_worst_off_is_better_off(mixed):
    worst = {policy: max(of.values()) for policy, of in mixed.items()}

    assert worst["token"] < min(worst["fifo"], worst["priority"])


def test_under_token_short_requests_of_whatever_class_do_not_wait_for_long_ones(mixed):
    """`a` comes late, so under `fifo` it waits for nearly all; `c` is of class batch."""
    assert mixed["token"]["a"] < mixed["fifo"]["a"]
    assert mixed["token"]["c"] < mixed["priority"]["c"]


@pytest.fixture(scope="module")
def alike():
    jobs = clients(ALIKE, 0.5, lambda _: 50, "4s")
    jobs.append(trainer("trainer", 1000, "40ms", host="2ms", **{"class": "batch"}))
    compared = ("priority", "exclusive")
    return {
        policy: played(*jobs, policy=policy, segment_us=1000, until_ms=5000) for policy in compared
    }


def within(outcome):
    told = [took_ns <= job.slo_ns for job in outcome.jobs for took_ns in job.requests_ns]
    return sum(told) / len(told)


def test_under_exclusive_servers_are_slowed_down_less_than_all_at_once(alike):
    found = {policy: slowdowns(outcome, ALIKE) for policy, outcome in alike.items()}

    assert stp(found["exclusive"]) > stp(found["priority"])
    assert within(alike["exclusive"]) >= within(alike["priority"])


def cut(outcome, of):
    """Return the share of the servers' turns that did not end with a request."""
    names = dict(enumerate(of, start=1))
    whole = [
        turn.worked_ns % (of[names[turn.context]][0] * MS) == 0
        for turn in turns(outcome)
        if turn.context in names
    ]
    return 1 - sum(whole) / len(whole)


def test_under_exclusive_requests_are_computed_whole(alike):
    """Except when a request is unknown, begins on an idle GPU, or meets a min_share."""
    assert cut(alike["exclusive"], ALIKE) < cut(alike["priority"], ALIKE) / 2
