"""What the daemon knows of the time that a job's requests take."""

from collections import deque
from random import Random

import pytest
from talk import BATCH, LATENCY, MS, Talk

from tandemd.core.events import RequestsServed
from tandemd.core.explain.explain import explain
from tandemd.core.tuner import latency as latency_module
from tandemd.core.tuner.latency import MOST, SPAN_NS, Latency, RequestKind, percentile_ns


def serve(talk, process_id, *durations_ms, kind=RequestKind.BURST):
    return talk.say(
        RequestsServed(
            now_ns=talk.now_ns,
            process_id=process_id,
            kind=kind,
            durations_ns=tuple(int(each * MS) for each in durations_ms),
        )
    )


def lines(talk, job_id):
    return " ".join(explain(talk.core, talk.core.jobs[job_id], talk.now_ns).lines)


@pytest.mark.parametrize(("count", "p99"), [(0, 0), (1, 1), (99, 99), (100, 99), (1000, 990)])
def test_99_of_100_take_no_longer(count, p99):
    durations = list(range(count, 0, -1))

    assert percentile_ns(durations, 0.99) == p99
    assert sum(each <= p99 for each in durations) >= 0.99 * count


def test_old_requests_are_forgotten_and_there_are_never_too_many():
    latency = Latency()
    latency.add([500] * 10, 0)
    latency.add(range(2 * MOST), SPAN_NS)
    assert latency.count == MOST

    latency.age(2 * SPAN_NS + 1)

    assert (latency.count, latency.p99_ns) == (0, 0)


def test_the_percentile_is_that_of_what_is_kept_whatever_came_and_went(monkeypatch):
    latency, kept, chance = Latency(), deque(maxlen=MOST), Random(5)
    monkeypatch.setattr(latency_module, "percentile_ns", None)  # must not sort anew
    for now_ns in range(0, 4 * SPAN_NS, SPAN_NS // 10):
        durations_ns = [chance.randrange(1000) for _ in range(chance.randrange(1000))]
        latency.add(durations_ns, now_ns)
        kept.extend((now_ns, duration_ns) for duration_ns in durations_ns)
        young = [duration_ns for at_ns, duration_ns in kept if now_ns - at_ns <= SPAN_NS]

        assert (latency.count, latency.p99_ns) == (len(young), percentile_ns(young, 0.99))


def test_requests_that_are_marked_are_not_mixed_with_bursts():
    talk = Talk()
    talk.attach(1, LATENCY)
    serve(talk, 1, 400, 400)

    serve(talk, 1, 3, 4, kind=RequestKind.MARKED)
    serve(talk, 1, 700)  # from another of its processes, which marks nothing, for example

    assert (talk.core.jobs[1].latency.count, talk.core.jobs[1].latency.p99_ns) == (2, 4 * MS)
    assert "p99 4.0 ms of 2 in the last 30 s (as it marks them)" in lines(talk, 1)


def test_the_objective_is_told_with_what_is_so():
    talk = Talk()
    talk.attach(1, BATCH, slo_p99_ns=50 * MS)
    assert "none of its requests was seen lately; its objective is 50 ms" in lines(talk, 1)

    serve(talk, 1, *[40] * 200)
    assert "20% below its objective of 50 ms" in lines(talk, 1)

    serve(talk, 1, *[60] * 100)
    assert "20% above its objective of 50 ms" in lines(talk, 1)


def served(talk, job_id):
    its = talk.core.jobs[job_id].served
    return its.counted.counted().count, its.missed


def test_all_requests_are_counted_and_those_that_took_longer_than_the_objective_of_then():
    talk = Talk()
    talk.attach(1, LATENCY)
    serve(talk, 1, 40, 60)
    assert served(talk, 1) == (2, 0)

    talk.update(1, job_class=LATENCY, slo_p99_ns=50 * MS)
    serve(talk, 1, 40, 50, 60)
    assert served(talk, 1) == (5, 1)

    talk.update(1, job_class=LATENCY, slo_p99_ns=30 * MS)
    serve(talk, 1, 40, 20)
    assert served(talk, 1) == (7, 2)
    assert talk.core.jobs[1].served.counted.counted().sum_ns == 310 * MS


def test_what_was_counted_stays_when_requests_age_are_marked_or_a_process_leaves():
    talk = Talk()
    talk.register(1, LATENCY, slo_p99_ns=50 * MS)
    talk.attach(1, job_id=1)
    talk.attach(2, job_id=1)
    serve(talk, 1, 60)
    serve(talk, 2, 70)

    talk.leave(1)
    talk.tick(after_ms=2 * SPAN_NS // MS)
    serve(talk, 2, 80, kind=RequestKind.MARKED)

    assert talk.core.jobs[1].latency.count == 1
    assert served(talk, 1) == (3, 3)


def test_requests_of_who_has_left_are_nobodys():
    talk = Talk()
    talk.attach(1, LATENCY)
    talk.leave(1)

    assert serve(talk, 1, 5) == []


def told(*spans):
    """Return the steady rate after `seconds` at `rate` requests a second, for each span."""
    latency, now_ns = Latency(), 0
    for seconds, rate in spans:
        for _ in range(seconds * rate):
            now_ns += 1_000_000_000 // rate
            latency.add([1_000_000], now_ns)
    return latency.steady_rate(2_000_000_000, now_ns)


def test_a_rate_is_told_of_all_requests_since_the_load_is_as_it_is():
    assert told((20, 50)) == (pytest.approx(50, rel=0.01), pytest.approx(800, abs=5))

    rate, count = told((20, 50), (4, 100))
    assert rate == pytest.approx(100, rel=0.01)
    assert count <= 400


def test_where_requests_are_few_more_of_them_tell_the_rate():
    assert told((20, 2)) == (pytest.approx(2), 32)
    assert Latency().steady_rate(2_000_000_000, 5) == (0.0, 0)


@pytest.mark.parametrize("requests", [[1_000_000], [1_000_000, 2_000_000]])
def test_of_requests_that_ended_at_once_no_rate_is_told(requests):
    latency = Latency()
    latency.add(requests, 10)

    assert latency.steady_rate(2_000_000_000, 20) == (0.0, 0)


def test_who_asks_for_nothing_any_more_counts_as_when_it_did():
    latency, second_ns = Latency(), 1_000_000_000
    for now_ns in range(0, 30 * second_ns, second_ns // 100):
        latency.add([1_000_000], now_ns)

    later = {latency.steady_rate(2 * second_ns, at * second_ns) for at in (40, 70, 170, 400)}

    ((rate, _),) = later
    assert rate == pytest.approx(100, rel=0.01)
