"""How moments of a recorded trace become spans."""

import json
from collections import Counter
from itertools import pairwise

import pytest

from tandem._results import MemoryHistory, TraceEvent
from tandem.chrome_trace import TraceWriter
from tandem.report.chrome import JobTrace
from tandem.report.spans import MOST_TRACKS, Span, Spans, Track


def event(kind, time_ns, *jobs, gpus=(0,), **more):
    return TraceEvent(kind=kind, time_ns=time_ns, jobs=jobs, gpus=gpus, **more)


def found(*events, begin_ns=0, end_ns=1000):
    """Return the track's `what` and lane, and the name, begin and end of each span."""
    spans = Spans(begin_ns, {"j-1": "j-1 train"}.get)
    done = [span for one in events for span in spans.feed(one)]
    return [
        (span.track.what, span.track.lane, span.name, span.start_ns, span.end_ns)
        for span in [*done, *spans.finish(end_ns)]
    ]


def test_a_turn_lasts_until_the_next_or_until_nobody_has_work():
    assert found(
        event("turn", 10, "j-1"),
        event("turn", 30, "j-1", ""),
        event("turn", 60),
        event("turn", 80, "j-1"),
    ) == [
        ("turns", 0, "j-1 train", 10, 30),
        ("turns", 0, "j-1 train + another user's job", 30, 60),
        ("turns", 0, "j-1 train", 80, 1000),
    ]


def test_parts_and_gpus_have_turns_of_their_own():
    spans = Spans(0)
    events = [
        event("turn", 10, "j-1", gpus=(0, 1)),
        event("turn", 20, "j-2", part=1),
        event("turn", 30, gpus=(0, 1)),
    ]

    done = [span for one in events for span in spans.feed(one)]

    assert [(span.track.gpu, span.track.lane, span.end_ns) for span in done] == [
        (0, 0, 30),
        (1, 0, 30),
    ]
    assert [span.track.lane for span in spans.finish(50)] == [1]


@pytest.mark.parametrize(("duration_ns", "start_ns"), [(30, 70), (80, 50)])
def test_a_wait_ends_at_its_event_and_begins_no_earlier_than_the_recording(duration_ns, start_ns):
    wait = event("wait", 100, "j-1", pid=7, thread=8, duration_ns=duration_ns, reason="gate")

    held = "held: another job's turn, or paused"
    assert found(wait, begin_ns=50) == [("waits", 8, held, start_ns, 100)]


def test_an_iteration_lasts_from_one_mark_to_the_next_of_its_process():
    steps = [(10, 7), (20, 9), (40, 7), (45, 9)]

    assert found(*(event("step", at_ns, "j-1", pid=pid) for at_ns, pid in steps)) == [
        ("iterations", 0, "iteration", 10, 40),
        ("iterations", 0, "iteration", 20, 45),
    ]


def test_requests_at_once_have_lanes_that_are_used_again():
    marks = [("begin", 10, 1), ("begin", 20, 2), ("end", 30, 1), ("begin", 40, 3), ("end", 50, 2)]
    requests = [event(f"request-{kind}", at, "j-1", pid=7, id=id_) for kind, at, id_ in marks]

    assert found(*requests) == [
        ("requests", 0, "request", 10, 30),
        ("requests", 1, "request", 20, 50),
        ("requests", 0, "request", 40, 1000),
    ]


def test_an_end_without_a_begin_is_nothing_and_a_second_begin_replaces_the_first():
    assert found(
        event("request-end", 5, "j-1", id=1),
        event("request-begin", 10, "j-1", id=1),
        event("request-begin", 20, "j-1", id=1),
        event("request-end", 30, "j-1", id=1),
    ) == [("requests", 0, "request", 20, 30)]


def test_a_phase_is_one_threads():
    assert found(
        event("phase-begin", 10, "j-1", id=5, thread=1),
        event("phase-begin", 20, "j-1", id=5, thread=2),
        event("phase-end", 30, "j-1", id=5, thread=2),
        event("phase-end", 40, "j-1", id=5, thread=1),
    ) == [("phases", 1, "phase", 20, 30), ("phases", 0, "phase", 10, 40)]


def wait(time_ns, duration_ns, thread=8):
    return event("wait", time_ns, "j-1", pid=7, thread=thread, duration_ns=duration_ns)


@pytest.mark.parametrize(
    ("events", "times"),
    [
        ([wait(60, 20), wait(70, 40)], [(40, 60), (60, 70)]),
        ([wait(60, 20), wait(50, 5)], [(40, 60), (60, 60)]),
        ([event("step", at, "j-1") for at in (10, 30, 20, 40)], [(10, 30), (30, 30), (30, 40)]),
        ([event(f"request-{end}", at, "j-1") for end, at in (("begin", 9), ("end", 5))], [(9, 9)]),
    ],
)
def test_whatever_times_a_process_writes_spans_do_not_overlap(events, times):
    assert [(start_ns, end_ns) for *_, start_ns, end_ns in found(*events)] == times


def test_a_process_has_so_many_tracks_and_leaves_others_theirs():
    marks = [event("request-begin", 10, "j-1", pid=7, id=id_) for id_ in range(MOST_TRACKS + 5)]
    waits = [wait(20, 5, thread=thread) for thread in range(MOST_TRACKS)]
    other = event("wait", 30, "j-2", pid=9, thread=1, duration_ns=5)

    whats = Counter(what for what, *_ in found(*marks[: MOST_TRACKS // 2], *waits, other))

    assert whats == {"waits": MOST_TRACKS + 1}
    assert len(found(*marks)) == MOST_TRACKS


@pytest.mark.parametrize("kind", ["", "turn", "wait"])
def test_what_says_too_little_is_left_out(kind):
    assert found(event(kind, 10, "j-1", gpus=() if kind else (0,))) == []


def test_the_file_names_each_track_once(tmp_path):
    path = tmp_path / "trace.json"
    with path.open("w") as file, TraceWriter(file) as writer:
        trace = JobTrace(writer, {"j-1": "j-1 train"}.get)
        spans = Spans(0, {"j-1": "j-1 train"}.get)
        for one in [event("turn", 10, "j-1"), event("turn", 30), event("turn", 40, "j-1")]:
            for span in spans.feed(one):
                trace.add(span)
        for span in spans.finish(50):
            trace.add(span)
        trace.finish(MemoryHistory(end_ns=50, gpus=(), curves=()))

    rows = json.loads(path.read_text())["traceEvents"]
    assert [row["args"]["name"] for row in rows if row["name"] == "thread_name"] == ["turns"]
    shown = [(row["name"], row["ts"] * 1e3, row["dur"] * 1e3) for row in rows if row["ph"] == "X"]
    assert shown == [("j-1 train", 10, 20), ("j-1 train", 40, 10)]


def test_turns_that_touch_do_so_in_the_file(tmp_path):
    path, begin_ns = tmp_path / "trace.json", 1_795_868_534_238_916_509  # a time of day
    ends_ns = [begin_ns + at for at in (0, 1_000_003, 2_000_501, 3_000_999)]
    with path.open("w") as file, TraceWriter(file, begin_ns=begin_ns) as writer:
        trace = JobTrace(writer, str)
        for start_ns, end_ns in pairwise(ends_ns):
            track = Track(gpu=0, job="", what="turns")
            trace.add(Span(track=track, name="it", start_ns=start_ns, end_ns=end_ns))

    rows = json.loads(path.read_text())["traceEvents"]
    read_ns = [(round(r["ts"] * 1e3), round(r["dur"] * 1e3)) for r in rows if r["ph"] == "X"]
    assert read_ns == [(0, 1_000_003), (1_000_003, 1_000_498), (2_000_501, 1_000_498)]


def test_turns_come_before_what_was_over_before_the_first(tmp_path):
    path = tmp_path / "trace.json"
    with path.open("w") as file, TraceWriter(file) as writer:
        trace = JobTrace(writer, str)
        for what, lane in [("waits", 8), ("turns", 2), ("turns", 0), ("waits", 9)]:
            track = Track(gpu=0, job="j-1", what=what, lane=lane)
            trace.add(Span(track=track, name="it", start_ns=1, end_ns=2))

    rows = json.loads(path.read_text())["traceEvents"]
    numbers = {row["tid"]: row["args"]["name"] for row in rows if row["name"] == "thread_name"}
    assert [name.partition(",")[0] for _, name in sorted(numbers.items())] == [
        "turns",
        "turns of part 2",
        "j-1 waits",
        "j-1 waits",
    ]


@pytest.mark.parametrize(
    ("track", "title"),
    [
        (Track(gpu=0, job="", what="turns", lane=2), "turns of part 2"),
        (Track(gpu=0, job="j-1", what="waits", pid=7, lane=8), "j-1 train waits, thread 8 of 7"),
        (Track(gpu=0, job="j-1", what="requests", pid=7), "j-1 train requests of 7"),
        (Track(gpu=0, job="j-1", what="requests", pid=7, lane=1), "j-1 train requests of 7, 2"),
    ],
)
def test_the_title_of_a_track_says_whose_it_is(tmp_path, track, title):
    path = tmp_path / "trace.json"
    with path.open("w") as file, TraceWriter(file) as writer:
        trace = JobTrace(writer, {"j-1": "j-1 train"}.get)
        trace.add(Span(track=track, name="it", start_ns=1, end_ns=2))
        trace.finish(MemoryHistory(end_ns=50, gpus=(), curves=()))

    rows = json.loads(path.read_text())["traceEvents"]
    assert [row["args"]["name"] for row in rows if row["name"] == "thread_name"] == [title]


def test_what_was_lost_is_on_a_track_of_its_own_whatever_the_process_marks():
    marks = [event("request-begin", 1, "j-1", pid=7, id=id_) for id_ in range(MOST_TRACKS)]
    lost = event("lost", 90, "j-1", pid=7, duration_ns=50, lost_records=12)

    spans = [one for one in found(*marks, lost) if one[0] == "lost telemetry"]

    assert spans == [("lost telemetry", 0, "up to 12 waits and marks are missing", 40, 90)]
