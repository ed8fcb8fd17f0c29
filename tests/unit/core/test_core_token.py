"""Short work first, until others have waited in proportion to the length of their own work."""

import pytest
from talk import BATCH, LATENCY, MS, NORMAL, Talk, run
from taught import answer, group, said, teach

from tandemd.core.explain.explain import explain
from tandemd.core.model import Options, Preemption
from tandemd.core.policies.token import LEVELS, Token, level, tokens
from tandemd.core.space.asked import why_no_share


def talk_of(**classes):
    """Jobs `j1`, `j2`.. of these classes under `token`, where the length of requests counts."""
    talk = Talk(Options(policy="token"))
    for name, job_class in classes.items():
        talk.attach(int(name[1:]), job_class, slo_p99_ns=50 * MS)
    return talk


def test_tokens_begin_at_the_priority_and_grow_by_it_for_each_length_waited():
    talk = talk_of(j1=BATCH, j2=NORMAL)
    teach(talk, 2, 10)
    talk.works(1)
    talk.waits(2)
    assert tokens(group(talk, 2), talk.now_ns) == 3

    talk.tick(after_ms=5)
    assert tokens(group(talk, 2), talk.now_ns) == 4.5

    talk.tick(after_ms=15)
    assert tokens(group(talk, 2), talk.now_ns) == 9


@pytest.mark.parametrize(("job_class", "first"), [(BATCH, 1), (NORMAL, 3), (LATENCY, 9)])
def test_classes_begin_at_the_papers_priorities(job_class, first):
    talk = talk_of(j1=job_class)

    assert tokens(group(talk, 1), talk.now_ns) == LEVELS[level(group(talk, 1))] == first


def test_of_one_class_the_shorter_goes_next_whoever_came_first():
    talk = talk_of(j1=LATENCY, j2=NORMAL, j3=NORMAL)
    teach(talk, 2, 30)
    teach(talk, 3, 10)
    talk.works(1)
    talk.waits(2)
    talk.waits(3, after_ms=1)

    talk.rests(1, after_ms=1)
    talk.tick(after_ms=2)

    assert talk.open_processes() == {3}


def test_who_waited_for_twice_its_length_goes_before_shorter_ones_of_its_class():
    talk = talk_of(j1=LATENCY, j2=NORMAL, j3=NORMAL)
    teach(talk, 2, 30)
    teach(talk, 3, 10)
    talk.works(1)
    talk.waits(2)
    talk.works(1, after_ms=60, ran_ms=60)
    talk.waits(3)

    talk.rests(1, after_ms=1)
    talk.tick(after_ms=2)

    assert talk.open_processes() == {2}


def test_a_request_cuts_who_would_go_on_for_longer_at_once():
    talk = talk_of(j1=NORMAL, j2=NORMAL)
    teach(talk, 1, 40)
    teach(talk, 2, 5)
    talk.works(1)
    talk.works(1, after_ms=4, ran_ms=4)

    talk.waits(2)

    assert not talk.is_open(1)
    assert talk.core.jobs[1].preemptions[Preemption.ORDER] == 1


def test_who_ends_sooner_than_the_other_would_is_let_end_whatever_the_tokens():
    talk = talk_of(j1=BATCH, j2=LATENCY)
    teach(talk, 1, 40)
    teach(talk, 2, 20)
    talk.works(1)
    talk.works(1, after_ms=25, ran_ms=25)
    talk.waits(2)
    assert talk.open_processes() == {1}
    assert "until that ends: 15 ms is left of its request, 20 ms of this one" in said(talk, 2)

    talk.works(1, after_ms=15, ran_ms=15)
    answer(talk, 1)

    assert not talk.is_open(1)


def test_a_wait_is_explained_by_tokens_where_these_decide_and_else_by_what_is_left():
    talk = talk_of(j1=LATENCY, j2=BATCH, j3=LATENCY)
    for job_id, took_ms in ((1, 20), (2, 5), (3, 40)):
        teach(talk, job_id, took_ms)
    talk.works(1)
    talk.waits(2)
    talk.waits(3)
    talk.works(1, after_ms=5, ran_ms=5)

    assert "goes first: it has 9.0 tokens, this one 2.0" in said(talk, 2)
    assert "goes first: 15 ms is left of its request, 40 ms of this one" in said(talk, 3)


def test_a_group_is_looked_at_when_its_tokens_reach_the_next_level():
    talk = talk_of(j1=LATENCY, j2=NORMAL)
    teach(talk, 1, 1000)
    teach(talk, 2, 10)
    talk.works(1)
    talk.waits(2)
    talk.works(1, after_ms=1, ran_ms=1)

    assert Token().look_again_ns(group(talk, 2)) - talk.now_ns == 19 * MS
    assert talk.is_open(1)
    talk.tick(after_ms=19)

    assert level(group(talk, 2)) == 2
    assert not talk.is_open(1)


def test_of_whom_nothing_is_known_turns_are_quanta_that_equals_get_alike():
    talk = talk_of(**{f"j{number}": NORMAL for number in range(1, 6)})

    got = run(talk, (1, 2, 3, 4, 5), 2000)

    assert max(got.values()) - min(got.values()) <= 22


def test_work_that_is_known_and_short_need_not_wait_for_the_quantum_of_unknown_work():
    talk = talk_of(j1=NORMAL, j2=NORMAL)
    teach(talk, 2, 3)
    talk.works(1)
    talk.works(1, after_ms=1, ran_ms=1)

    talk.waits(2)

    assert not talk.is_open(1)


def test_what_is_said_of_a_share_of_time_is_that_it_means_nothing():
    talk = talk_of(j1=NORMAL, j2=NORMAL)
    talk.update(1, sm_percent=50)

    why_not = why_no_share(group(talk, 1), talk.core.policy, talk.core.options)
    assert why_not == "under token a turn is an iteration or a request, however long that takes"
    assert group(talk, 1).weight == group(talk, 2).weight


def test_where_nothing_is_known_yet_that_is_told():
    talk = talk_of(j1=NORMAL, j2=NORMAL)

    lines = explain(talk.core, talk.core.job(1), talk.now_ns).lines
    unknown = (
        "how long its iterations or requests take is not known: its turns are 10 ms of gpu time"
    )
    assert unknown in lines


def test_what_is_known_of_iterations_is_told():
    talk = talk_of(j1=NORMAL, j2=NORMAL)
    teach(talk, 1, 10, 30)

    lines = explain(talk.core, talk.core.job(1), talk.now_ns).lines
    told = "each request is a turn: usually 10 ms of gpu time, at most 30 ms lately"
    assert told in lines
