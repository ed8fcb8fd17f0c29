"""What a recorded trace says about events that it lacks."""

from tandem.trace.records import RECORD
from tandemd.observers.losses import Losses
from tandemd.observers.taps import Taken
from tandemd.observers.trace_events import MOST_OF_PROCESS, Author, TraceKind

NOTHING = Taken([], {})
AUTHORS = {1: Author(job="j-1", pid=70, gpus=(0,)), 2: Author(job="j-2", pid=71, gpus=(1,))}


def lost(losses, dropped, *, now_ns, taken=NOTHING):
    found = losses.look(dropped, taken, AUTHORS, now_ns=now_ns)
    assert {event.kind for event in found} <= {TraceKind.LOST}
    return [(event.pid, event.lost_records, event.at_ns, event.duration_ns) for event in found]


def test_what_was_dropped_since_the_last_look_is_told_once():
    losses = Losses({1: 5}, 100)  # dropped before the recording

    assert lost(losses, {1: 5}, now_ns=150) == []
    assert lost(losses, {1: 9, 2: 3}, now_ns=200) == [(70, 4, 200, 50), (71, 3, 200, 50)]
    assert lost(losses, {1: 9, 2: 3}, now_ns=250) == []


def test_what_came_and_is_left_out_counts_too():
    record = bytes(RECORD.size)
    came = [(1, record * MOST_OF_PROCESS), (1, record * 2), (2, record * MOST_OF_PROCESS)]

    assert lost(Losses({}, 0), {1: 1}, taken=Taken(came, {}), now_ns=50) == [(70, 3, 50, 50)]
    assert lost(Losses({}, 0), {1: 1}, taken=Taken(came, {1: 4}), now_ns=50) == [(70, 7, 50, 50)]


def test_of_a_job_that_the_caller_may_not_see_nothing_is_told():
    assert lost(Losses({}, 0), {3: 7}, now_ns=50) == []
