"""One request at a time, uninterrupted, the most urgent first; other work runs in between."""

import pytest
from talk import BATCH, LATENCY, MS, NORMAL, Talk, run
from taught import answer, group, said, teach

from tandemd.core.model import Options, Preemption
from tandemd.core.policies.exclusive import latest_start_ns


def talk_of(**jobs):
    """Jobs `j1`, `j2`.. under `exclusive`: class and objective in milliseconds (0: none)."""
    talk = Talk(Options(policy="exclusive"))
    for name, (job_class, objective_ms) in jobs.items():
        talk.attach(int(name[1:]), job_class, slo_p99_ns=objective_ms * MS)
    return talk


def test_the_latest_start_is_when_it_came_and_the_objective_less_what_one_takes_at_most():
    talk = talk_of(j1=(LATENCY, 100))
    teach(talk, 1, 10, 10, 30)

    talk.waits(1)

    assert latest_start_ns(group(talk, 1)) - talk.now_ns == 70 * MS


def test_of_jobs_that_share_memory_the_latest_start_is_by_the_objective_that_one_has():
    talk = talk_of(j1=(LATENCY, 100), j2=(LATENCY, 0))
    talk.share(1, key=7)
    talk.share(2, key=7)
    teach(talk, 1, 10)

    talk.waits(1)

    assert group(talk, 1) is group(talk, 2)
    assert latest_start_ns(group(talk, 1)) - talk.now_ns == 90 * MS


def test_servers_take_turns_in_the_order_of_their_latest_starts():
    talk = talk_of(j1=(LATENCY, 100), j2=(LATENCY, 100), j3=(LATENCY, 40))
    for job_id in (1, 2, 3):
        teach(talk, job_id, 10)
    talk.works(1)
    talk.waits(2)
    talk.waits(3, after_ms=5)
    assert talk.open_processes() == {1}

    talk.works(1, after_ms=5, ran_ms=10)
    answer(talk, 1)
    talk.rests(1, after_ms=1)

    assert talk.open_processes() == {3}


def test_a_request_is_not_cut_by_one_that_is_more_urgent():
    talk = talk_of(j1=(LATENCY, 1000), j2=(LATENCY, 20))
    teach(talk, 1, 50)
    teach(talk, 2, 10)
    talk.works(1)
    talk.works(1, after_ms=12, ran_ms=12)
    talk.waits(2)

    talk.works(1, after_ms=20, ran_ms=20)

    assert talk.open_processes() == {1}


def test_who_asks_without_a_pause_gives_the_turn_on_between_two_requests():
    talk = talk_of(j1=(LATENCY, 100), j2=(LATENCY, 100))
    teach(talk, 1, 10)
    teach(talk, 2, 10)
    talk.works(1)
    talk.waits(2)
    talk.works(1, after_ms=10, ran_ms=10)

    answer(talk, 1)

    assert not talk.is_open(1)


@pytest.mark.parametrize(("request_ms", "look_ms"), [(30, 30), (5, 10)])
def test_a_turn_is_looked_at_when_its_request_is_late_and_a_quantum_is_over(request_ms, look_ms):
    talk = talk_of(j1=(LATENCY, 1000), j2=(LATENCY, 1000))
    teach(talk, 1, request_ms)
    talk.works(1)

    talk.waits(2)

    assert talk.wake_at_ms == look_ms


def learn_iterations(talk, job_id, ms):
    talk.works(job_id)
    for _ in range(3):
        step(talk, job_id, after_ms=ms)


def step(talk, job_id, after_ms):
    """The job computed for `after_ms`, and one of its iterations ended."""
    usage = talk.usages[job_id]
    talk.sample(
        job_id,
        after_ms=after_ms,
        busy=True,
        exclusive_ns=usage.exclusive_ns + after_ms * MS,
        steps=usage.steps + 1,
    )


def test_a_request_takes_the_gpu_from_an_iteration_at_once():
    talk = talk_of(j1=(BATCH, 0), j2=(LATENCY, 1000))
    learn_iterations(talk, 1, 40)
    teach(talk, 2, 10)
    talk.works(1)
    talk.works(1, after_ms=10, ran_ms=10)
    before = talk.core.jobs[1].preemptions[Preemption.CLASS]

    talk.waits(2)

    assert not talk.is_open(1)
    assert talk.core.jobs[1].preemptions[Preemption.CLASS] == before + 1


def test_so_does_one_of_another_job_with_an_objective():
    talk = talk_of(j1=(NORMAL, 0), j2=(NORMAL, 1000))
    learn_iterations(talk, 1, 40)
    teach(talk, 2, 10)
    talk.works(1)
    talk.works(1, after_ms=10, ran_ms=10)

    talk.waits(2)

    assert not talk.is_open(1)


def test_a_higher_class_lets_the_iteration_of_a_lower_one_end():
    talk = talk_of(j1=(BATCH, 0), j2=(NORMAL, 0))
    learn_iterations(talk, 1, 40)
    talk.works(1, after_ms=10, ran_ms=10)

    talk.waits(2)
    assert talk.open_processes() == {1}
    assert "until its iteration ends: at most 30 ms of gpu time" in said(talk, 2)
    step(talk, 1, after_ms=30)

    assert not talk.is_open(1)


def test_work_of_which_nothing_is_known_is_cut_at_once():
    talk = talk_of(j1=(BATCH, 0), j2=(LATENCY, 1000))
    teach(talk, 2, 10)
    talk.works(1)
    talk.works(1, after_ms=1, ran_ms=1)

    talk.waits(2)

    assert not talk.is_open(1)


def test_other_jobs_with_an_objective_are_served_like_those_of_the_latency_class():
    talk = talk_of(j1=(NORMAL, 50), j2=(LATENCY, 100))
    for job_id in (1, 2):
        teach(talk, job_id, 10)
    talk.works(2)
    talk.waits(1)
    talk.works(2, after_ms=3, ran_ms=3)

    assert talk.open_processes() == {2}
    assert "has to begin first" not in said(talk, 1)
    assert "until its request ends: at most 7.0 ms of gpu time" in said(talk, 1)


def test_best_effort_work_has_what_is_left_by_weight_and_its_share_of_what_is_not():
    talk = talk_of(j1=(BATCH, 0), j2=(BATCH, 0))

    got = run(talk, (1, 2), 1000)

    assert max(got.values()) - min(got.values()) <= 20


def test_of_who_waits_behind_work_that_is_due_that_is_told():
    talk = talk_of(j1=(LATENCY, 0), j2=(BATCH, 0), j3=(LATENCY, 0))
    talk.works(1)
    talk.waits(2)
    talk.waits(3, after_ms=2)

    assert "has the gpu and goes first: it is due" in said(talk, 2)
    assert "has to begin first: 2.0 ms ago, this one 0.0 ms ago" in said(talk, 3)
