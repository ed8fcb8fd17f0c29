"""What a recorded trace says of two jobs that take turns, against what the GPU did.

On the virtual clock. Events carry the time of day. Each step marks a moment that the program also
knows on the device's clock, so every step shows how far the two clocks are apart.
"""

import signal
from dataclasses import replace
from itertools import islice, pairwise

import pytest
from running_job import DEADLINE_S, start_together, until

from tandem.errors import CapacityError
from tandem.report.spans import Spans

pytestmark = pytest.mark.slow

STEPS = 40
QUANTUM_MS = 3
MARKS = 100_000  # more than a ring and the daemon keep
#: The work of each step lasts a third of a turn, and its moment is returned.
WORK = f"[(serving.launch(gpu, 32), marks.step(), now_ns())[2] for _ in range({STEPS})]"


@pytest.fixture
def recorded(fresh_place):
    """The jobs, the moments of their steps, and the events of both from begin to end."""
    place = fresh_place
    place.start_daemon(*place.configured(policy='"fair"', quantum_ms=QUANTUM_MS))
    jobs = [place.job(name) for name in ("one", "other")]
    with place.client() as client:
        names = {job.display_name: job.name for job in client.jobs()}
        events = client.trace(seconds=DEADLINE_S)
        start_together(dict.fromkeys(jobs, WORK))
        moments = {names[job.name]: job.result() for job in jobs}
        told = list(until_over(events))
    return place, {names[job.name]: job for job in jobs}, moments, told


def until_over(events):
    """Yield events until all steps have been reported and no job has the turn."""
    steps, is_quiet = 0, False
    for event in events:
        yield event
        steps += event.kind == "step"
        if event.kind == "turn":
            is_quiet = not event.jobs
        if steps == 2 * STEPS and is_quiet:
            events.close()


def moments_of(told, name):
    return [event.time_ns for event in told if event.kind == "step" and event.jobs == (name,)]


def shared_ns(kernel, turn):
    """Return for how long the kernel was on the GPU during that turn."""
    return max(0, min(kernel["t_end_ns"], turn.end_ns) - max(kernel["t_start_ns"], turn.start_ns))


def test_turns_and_waits_are_when_they_were(recorded):
    place, jobs, moments, told = recorded
    apart = {
        told_ns - at_ns
        for name in jobs
        for told_ns, at_ns in zip(moments_of(told, name), moments[name], strict=True)
    }
    assert len(apart) == 1  # every step is reported, with its right time
    offset_ns = apart.pop()

    spans = Spans(0)
    shifted = (replace(event, time_ns=event.time_ns - offset_ns) for event in told)
    found = [span for event in shifted for span in spans.feed(event)]
    turns = [span for span in found if span.track.what == "turns"]
    assert len(turns) > 8
    for before, after in pairwise(turns):
        assert {before.name, after.name} == jobs.keys()
        assert before.end_ns == after.start_ns
    for name, job in jobs.items():
        own = [turn for turn in turns if turn.name == name]
        ran = [one for one in place.ran(job.pid) if one["t_end_ns"] > turns[0].start_ns]
        busy_ns = sum(one["t_end_ns"] - one["t_start_ns"] for one in ran)
        # Not all: both began before the first decision, and submitted work is never taken back.
        assert sum(shared_ns(one, turn) for one in ran for turn in own) > 0.9 * busy_ns
        held = [span for span in found if span.track.job == name and span.name.startswith("held")]
        assert len(held) >= len(own) - 1
        for span in held:  # each ends when the job's own turn comes
            assert any(turn.start_ns <= span.end_ns <= turn.end_ns for turn in own), span


def test_all_who_record_are_told_of_all_steps(fresh_place):
    place = fresh_place
    place.start_daemon()
    job = place.job("one")
    with place.client() as client:
        recordings = [client.trace(seconds=DEADLINE_S) for _ in range(2)]
        job.do(f"[marks.step() for _ in range({STEPS})]")

        for events in recordings:
            steps = (event for event in events if event.kind == "step")
            assert len(list(islice(steps, STEPS))) == STEPS


def test_two_of_a_user_record_at_a_time_and_who_leaves_makes_room(fresh_place):
    fresh_place.start_daemon()
    with fresh_place.client() as one, fresh_place.client() as other:
        first, _second = [one.trace(seconds=DEADLINE_S) for _ in range(2)]

        with pytest.raises(CapacityError, match="may record a trace at once"):
            other.trace(seconds=1)

        first.close()
        until(lambda: may_record(other), what="a place that is free again")


def may_record(client):
    try:
        client.trace(seconds=1).close()
    except CapacityError:
        return False
    return True


def test_what_is_lost_is_told_so_that_a_gap_is_not_taken_for_idleness(fresh_place):
    place = fresh_place
    place.start_daemon()
    job = place.job("one")
    with place.client() as client:
        events = client.trace(seconds=DEADLINE_S)
        place.daemon.send_signal(signal.SIGSTOP)
        job.do(f"[marks.step() for _ in range({MARKS})] and None")
        place.daemon.send_signal(signal.SIGCONT)

        steps = lost = 0
        for event in events:
            steps += event.kind == "step"
            lost += event.lost_records
            if steps + lost >= MARKS:
                events.close()

    assert steps < MARKS <= steps + lost
