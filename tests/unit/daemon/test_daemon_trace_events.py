"""What the daemon reports of turns and telemetry to whoever records a trace."""

from collections import Counter
from types import SimpleNamespace

import pytest
from test_daemon_desk import asked, desk_of

from tandem.trace.records import RECORD
from tandemd.core.model import JobSpec, Options, WaitReason
from tandemd.core.turns.rings import Rings
from tandemd.observers.trace_events import MOST_OF_PROCESS, Author, TraceKind, of_records
from tandemd.observers.turn_log import MOST, TurnLog

AUTHOR = Author(job="j-1", pid=70, gpus=(0,))
MARK, WAIT, LAUNCH = 11, 14, 1
RING = (frozenset({0}), 0)


def record(kind, at_ns, *, flags=0, thread=0, id_=0, duration_ns=0, value=0):
    return RECORD.pack(at_ns, kind, flags, 0, thread, 0, id_, 0, 0, 0, duration_ns, value)


def told(*records, process_id=1, until_ns=1000):
    return list(of_records([(process_id, b"".join(records))], {1: AUTHOR}, until_ns=until_ns))


def test_a_wait_is_told_with_its_reason_and_length():
    [event] = told(record(WAIT, 100, thread=71, duration_ns=40, value=WaitReason.PRESENCE))

    assert (event.kind, event.at_ns, event.duration_ns) == (TraceKind.WAIT, 100, 40)
    assert (event.jobs, event.gpus, event.pid, event.thread) == (("j-1",), (0,), 70, 71)
    assert event.reason is WaitReason.PRESENCE


def test_marks_are_told_but_for_wishes_and_nothing_else_is():
    marks = [record(MARK, 10 + kind, flags=kind, id_=5) for kind in range(1, 8)]

    events = told(record(LAUNCH, 5), *marks)

    assert [(event.kind, event.at_ns, event.id) for event in events] == [
        (TraceKind.STEP, 11, 5),
        (TraceKind.PHASE_BEGIN, 12, 5),
        (TraceKind.PHASE_END, 13, 5),
        (TraceKind.REQUEST_BEGIN, 15, 5),
        (TraceKind.REQUEST_END, 16, 5),
    ]


@pytest.mark.parametrize(
    "hostile",
    [
        record(WAIT, 0, value=1),  # at time 0
        record(WAIT, 1001, value=1),  # in the future
        record(MARK, 2**64 - 1, flags=1),
        record(WAIT, 100, duration_ns=101, value=1),  # longer than the time that has passed
        record(WAIT, 100, value=0),
        record(WAIT, 100, value=99),
        record(MARK, 100, flags=200),
    ],
)
def test_what_cannot_have_been_is_left_out(hostile):
    assert told(hostile) == []


def test_of_a_process_that_marks_all_the_time_the_first_are_told_and_others_as_ever():
    flood = b"".join(record(MARK, at_ns, flags=1) for at_ns in range(1, MOST_OF_PROCESS))
    few = record(MARK, 5, flags=1)
    drained = [(1, flood), (2, few), (1, few * 10), (2, few)]
    other = Author(job="j-2", pid=71, gpus=(0,))

    events = list(of_records(drained, {1: AUTHOR, 2: other}, until_ns=10_000))

    assert Counter(event.pid for event in events) == {70: MOST_OF_PROCESS, 71: 2}


def test_who_may_not_be_seen_is_not_told_of():
    assert told(record(MARK, 100, flags=1), process_id=2) == []


def scheduler_with(*holders):
    """A scheduler whose turn these groups hold, each with the job of its number."""
    groups = {key: SimpleNamespace(jobs={key: None}) for key in holders}
    first, second, third = [*holders, None, None, None][:3]
    turns = SimpleNamespace(holder=first, companion=second, third=third)
    return SimpleNamespace(groups=groups, rings=Rings(turns={RING: turns}))


def test_turns_are_told_where_somebody_else_has_them():
    log = TurnLog()
    for at_ns, holders in enumerate([(), (1,), (1,), (1, 2), (2, 1), ()]):
        log.look(scheduler_with(*holders), at_ns)

    assert [(turn.at_ns, turn.job_ids) for turn in log.take()] == [
        (1, (1,)),
        (3, (1, 2)),
        (4, (2, 1)),
        (5, ()),
    ]
    assert log.take() == []


def test_the_turn_of_those_who_share_no_gpu_any_more_is_over():
    log = TurnLog()
    log.look(scheduler_with(1), 1)
    log.look(SimpleNamespace(groups={}, rings=Rings()), 2)

    assert [(turn.ring, turn.job_ids) for turn in log.take()] == [(RING, (1,)), (RING, ())]


def test_a_log_that_nobody_takes_keeps_the_newest():
    log = TurnLog()
    for at_ns in range(MOST + 10):
        log.look(scheduler_with(1 + at_ns % 2), at_ns)

    turns = log.take()
    assert (len(turns), turns[-1].at_ns) == (MOST, MOST + 9)


@pytest.mark.parametrize(("privacy", "other"), [("hide-cmdline", "j-2"), ("own-only", "")])
def test_who_has_the_turn_is_named_to_whom_may_see_it(privacy, other):
    desk = desk_of(Options(), [(1000, JobSpec()), (1001, JobSpec())], privacy=privacy)

    assert asked(desk, lambda: desk._ask(1000, lambda: desk._name_for(1000, 1))) == "j-1"
    assert asked(desk, lambda: desk._ask(1000, lambda: desk._name_for(1000, 2))) == other
