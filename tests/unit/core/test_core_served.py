"""What people are told of requests compared with their marks, which no decision relies on."""

from dataclasses import replace

import pytest
from talk import BATCH, LATENCY, MS, NORMAL, Talk

from tandemd.core.events import RequestsServed, Ticked
from tandemd.core.explain.explain import explain
from tandemd.core.explain.requests import newest_requests
from tandemd.core.model import Options
from tandemd.core.planner.planning import outlook
from tandemd.core.policy import POLICIES
from tandemd.core.tuner.latency import SPAN_NS, RequestKind
from tandemd.core.turns.interference import Interference


def serve(talk, process_id, *durations_ms, said_ms=(), kind=RequestKind.MARKED):
    """Requests end after these times; marks allow a time for each, or one time for all."""
    said_ms = said_ms if isinstance(said_ms, tuple) else (said_ms,) * len(durations_ms)
    return talk.say(
        RequestsServed(
            now_ns=talk.now_ns,
            process_id=process_id,
            kind=kind,
            durations_ns=tuple(each * MS for each in durations_ms),
            said_ns=tuple(each * MS for each in said_ms),
        )
    )


def told(talk, job_id=1):
    """Return the line about requests."""
    lines = explain(talk.core, talk.core.jobs[job_id], talk.now_ns).lines
    return next((line for line in lines if "request" in line), "")


def counts(talk, job_id=1):
    served = talk.core.jobs[job_id].served
    return served.counted.counted().count, served.missed


@pytest.mark.parametrize("job_class", [LATENCY, NORMAL, BATCH])
def test_of_any_job_marked_requests_are_told_against_their_marks(job_class):
    talk = Talk()
    talk.attach(1, job_class)

    serve(talk, 1, *[40] * 200, said_ms=50)
    line = told(talk)
    assert line.startswith("requests: p99 40 ms of 200 in the last 30 s (as it marks them)")
    assert line.endswith(", 20% below the 50 ms that its marks allow (--slo asks for none)")
    assert counts(talk) == (200, 0)

    serve(talk, 1, *[60] * 3, said_ms=50)
    assert ", 20% above the 50 ms that its marks allow" in told(talk)
    assert counts(talk) == (203, 3)


def test_what_a_person_asks_for_counts_before_marks():
    talk = Talk()
    talk.attach(1, NORMAL)
    serve(talk, 1, 40, 60, said_ms=50)
    assert counts(talk) == (2, 1)

    talk.update(1, slo_p99_ns=100 * MS)
    serve(talk, 1, 60, 110, said_ms=50)
    assert counts(talk) == (4, 2)
    assert told(talk).endswith(", 10% above its objective of 100 ms")

    talk.update(1)
    serve(talk, 1, 60, said_ms=50)
    assert counts(talk) == (5, 3)
    assert "that its marks allow" in told(talk)


def test_marks_that_say_nothing_are_told_without_an_objective():
    talk = Talk()
    talk.attach(1, NORMAL)

    serve(talk, 1, 40, 5000)
    serve(talk, 1, 40, said_ms=0)

    assert told(talk).endswith("p99 5.0 s of 3 in the last 30 s (as it marks them)")
    assert counts(talk) == (3, 0)


def test_where_some_may_take_any_time_their_p99_is_held_against_nothing():
    talk = Talk()
    talk.attach(1, NORMAL)

    serve(talk, 1, *[40] * 99, 10_000, said_ms=(*[50] * 99, 0))
    assert "20% below the 50 ms" in told(talk)  # one in a hundred may take any time
    serve(talk, 1, 10_000, said_ms=0)

    assert talk.core.jobs[1].served.marked_p99_ns(talk.now_ns) == 0
    assert told(talk).endswith("p99 10 s of 101 in the last 30 s (as it marks them)")
    assert counts(talk) == (101, 0)


def test_each_request_is_held_against_its_own_mark_and_their_p99_against_what_these_allow():
    talk = Talk()
    talk.attach(1, NORMAL)
    served = talk.core.jobs[1].served

    serve(talk, 1, 900, *[10] * 99, said_ms=(1000, *[20] * 99))  # 1 in 100 has another mark
    assert served.marked_p99_ns(talk.now_ns) == 20 * MS
    assert "50% below the 20 ms" in told(talk)

    serve(talk, 1, 900, 10, said_ms=(1000, 20))
    assert served.marked_p99_ns(talk.now_ns) == 1000 * MS
    assert "10% below the 1.0 s" in told(talk)
    assert counts(talk) == (102, 0)

    serve(talk, 1, 30, 900, 30, said_ms=(20, 1000, 0))
    assert counts(talk) == (105, 1)


def test_where_none_was_seen_lately_the_newest_mark_stands():
    talk = Talk()
    talk.attach(1, NORMAL)
    assert told(talk) == ""

    serve(talk, 1, 40, 40, said_ms=(70, 50))
    talk.tick(after_ms=SPAN_NS / MS + 1)

    assert told(talk) == "none of its requests was seen lately; its marks allow 50 ms"
    assert counts(talk) == (2, 0)


def test_of_who_nobody_wants_to_be_quick_only_marked_requests_are_told():
    talk = Talk()
    talk.attach(1, NORMAL)

    serve(talk, 1, 40, 40, kind=RequestKind.BURST)
    serve(talk, 1, 40, 40, kind=RequestKind.STEP)

    assert told(talk) == ""
    assert counts(talk) == (0, 0)


def test_requests_are_told_on_when_somebody_wants_a_job_to_be_quick_and_does_so_no_more():
    talk = Talk()
    talk.attach(1, NORMAL)
    serve(talk, 1, 40, 40, said_ms=50)

    talk.update(1, job_class=LATENCY)
    serve(talk, 1, 30, said_ms=50)
    assert newest_requests(talk.core.jobs[1], talk.now_ns).p99_ns == 30 * MS

    talk.update(1, job_class=BATCH)
    serve(talk, 1, 70, said_ms=50)
    assert newest_requests(talk.core.jobs[1], talk.now_ns).p99_ns == 70 * MS
    assert counts(talk) == (4, 1)


HERE = frozenset({0})


def decided(policy, *, marking, said_ms):
    """Return every decision and plan for a server, a job with an objective, and a trainer.

    `marking`: which of them mark their requests.
    """
    talk = Talk(Options(policy=policy, tuner=True, planner=True, sm_counts={0: 132}))
    talk.attach(1, NORMAL)
    talk.attach(2, NORMAL, slo_p99_ns=20 * MS)
    talk.attach(3, BATCH)
    found = []
    for turn in range(300):
        for process_id in (1, 2, 3):
            if talk.is_open(process_id):
                found.append(talk.works(process_id, after_ms=3, ran_ms=3))
            else:
                found.append(talk.waits(process_id, after_ms=3))
            if process_id in marking:
                took_ms = 15 + 20 * (turn % 3)
                found.append(serve(talk, process_id, took_ms, took_ms, said_ms=said_ms))
            else:
                found.append(talk.say(Ticked(now_ns=talk.now_ns)))
        found.append(talk.tick(after_ms=1))
    seen = outlook(talk.core.islands[HERE], HERE, talk.core.options, Interference(), talk.now_ns)
    workers = [replace(worker, at=abs) for worker in seen.scene.workers.values()]
    shares = [talk.core.group_of(job).owed_share for job in talk.core.jobs.values()]
    rhythms = [job.rhythm for job in talk.core.jobs.values()]
    return found, workers, seen.measured_p99_ns, shares, rhythms


@pytest.mark.parametrize("policy", POLICIES)
def test_by_marks_and_what_they_say_nothing_is_decided(policy):
    asked_for = decided(policy, marking={2}, said_ms=0)

    assert decided(policy, marking={2}, said_ms=10) == asked_for
    assert decided(policy, marking={1, 2, 3}, said_ms=0) == asked_for
    assert decided(policy, marking={1, 2, 3}, said_ms=10) == asked_for
