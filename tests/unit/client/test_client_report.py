"""The report of the jobs' memory, and its export for ui.perfetto.dev."""

import io
import json
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from test_client_top import GPU

from tandem._results import (
    JobPart,
    MemoryCurve,
    MemoryHistory,
    MemoryPoint,
    Partition,
    ScalingCurve,
    TraceEvent,
)
from tandem.chrome_trace import TraceWriter
from tandem.cli import __main__ as cli
from tandem.errors import CapacityError, UnavailableError
from tandem.report import chart, page
from tandem.report.chrome import JobTrace
from tandem.report.series import LOOK_NS, moments_of, occupation_of, since, swaps_of, work_of

GIB, S = 1 << 30, 1_000_000_000


def point(at_s, resident=0, swapped=0, waiting=0, *, filed=0, gpu_s=0.0, sm_s=0):
    return MemoryPoint(
        time_ns=int(at_s * S),
        resident_bytes=resident * GIB,
        swapped_bytes=swapped * GIB,
        filed_bytes=filed * GIB,
        waiting_bytes=waiting * GIB,
        gpu_time_ns=int(gpu_s * S),
        sm_time_ns=sm_s * S,
    )


def curve(*points, job="j-1", name="train", gpu=0):
    return MemoryCurve(job=job, display_name=name, gpu=gpu, points=points)


MOVED = curve(
    point(0, 60),
    point(10, 60, gpu_s=5),
    point(10.1, 40, 20, gpu_s=5),
    point(10.2, 10, 50, gpu_s=5),
    point(30, 10, 50, gpu_s=5),
    point(30.1, 60, gpu_s=5),
)
BESIDE = curve(point(5, 0, 0, 70), point(10.2, 70), point(25, 0), job="j-2", name="</script><b>x")
HISTORY = MemoryHistory(end_ns=40 * S, curves=(MOVED, BESIDE), gpus=(GPU,))


def test_moves_in_one_direction_are_one_and_who_ends_moves_nothing():
    ended = curve(point(0, 1, 5), point(1))

    assert [(s.is_out, s.size_bytes // GIB) for s in swaps_of(MOVED)] == [(True, 50), (False, 50)]
    out, back = swaps_of(MOVED)
    assert (out.start_ns, out.end_ns) == (10 * S, int(10.2 * S))
    assert (back.start_ns, back.end_ns) == (int(30.1 * S) - LOOK_NS, int(30.1 * S))
    assert swaps_of(ended) == []


def test_work_is_a_share_of_the_time_it_was_seen_in():
    (work,) = work_of(MOVED)

    assert (work.start_ns, work.end_ns, work.share) == (0, 10 * S, 0.5)


def test_sms_are_those_held_on_average_between_two_points():
    wide = curve(point(0), point(10, sm_s=1000), point(20, sm_s=1000), point(30, sm_s=1320))
    narrow = curve(point(5), point(15, sm_s=80), job="j-2")

    held = [(m.at_ns // S, m.resident_bytes) for m in occupation_of([wide, narrow])]

    assert held == [
        (0, (100, 0)),
        (5, (100, 8)),
        (10, (0, 8)),
        (15, (0, 0)),
        (20, (32, 0)),
        (30, (0, 0)),
    ]


def test_of_daemons_that_do_not_count_sms_none_are_drawn():
    assert occupation_of(HISTORY.curves) == []
    assert "SMs that kernels held" not in written(HISTORY)

    counted = replace(HISTORY, curves=(curve(point(0), point(10, sm_s=50)),))

    assert "SMs that kernels held, estimated from records; the line marks all 8" in written(counted)


def test_moments_have_what_all_jobs_hold():
    held = [
        (m.at_ns / S, [size // GIB for size in m.resident_bytes])
        for m in moments_of([MOVED, BESIDE], HISTORY.end_ns)
    ]

    assert held == [
        (0, [60, 0]),
        (5, [60, 0]),
        (10, [60, 0]),
        (10.1, [40, 0]),
        (10.2, [10, 70]),
        (25, [10, 0]),
        (30, [10, 0]),
        (30.1, [60, 0]),
        (40, [60, 0]),  # up to now
    ]


def test_of_many_moments_the_fullest_stay_and_none_is_made_up():
    many = curve(*(point(n, n % 100, (n + 50) % 100) for n in range(10_000)))
    all_of_them = {(m.at_ns, m.resident_bytes) for m in moments_of([many], 0, most=10**6)}

    kept = moments_of([many], 0, most=50)

    assert len(kept) <= 101
    assert max(m.resident_bytes for m in kept) == (99 * GIB,)
    assert max(m.swapped_bytes for m in kept) == (99 * GIB,)
    assert {(m.at_ns, m.resident_bytes) for m in kept[:-1]} <= all_of_them
    assert [m.at_ns for m in kept] == sorted(m.at_ns for m in kept)


def test_the_last_seconds_begin_with_what_was_held_then():
    found = since(HISTORY, 28 * S)

    (only,) = found.curves  # the other job had already ended
    assert [(p.time_ns // S, p.resident_bytes // GIB) for p in only.points] == [
        (28, 10),
        (30, 10),
        (30, 60),
    ]


def tops(path):
    """Return the heights of an area's upper edge, left to right."""
    upper = path.split("Z")[0].removeprefix("M").split("L")
    return [float(pair.split()[1]) for pair in upper[: len(upper) // 2]]


def test_areas_are_stacked_up_to_the_capacity():
    axis = chart.Axis(begin_ns=0, end_ns=HISTORY.end_ns)
    moments = moments_of([MOVED, BESIDE], HISTORY.end_ns)

    drawn = chart.areas(
        moments, axis, [("held", lambda m: m.resident_bytes)], capacity_bytes=80 * GIB
    )

    one, other = re.findall(r'class="held"[^>]* d="([^"]*)"', drawn)
    (limit,) = re.findall(r'class="limit"[^>]* y1="([^"]*)"', drawn)
    assert min(tops(other)) == pytest.approx(float(limit))  # 10 + 70 of 80 GiB
    assert min(tops(one)) > float(limit)
    assert tops(other)[0] == tops(one)[0]  # nothing is stacked on it yet


class Balance(HTMLParser):
    """Counts the elements left open at the end, and keeps the text of scripts."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.scripts = [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)


def written(history):
    file = io.StringIO()
    page.write(history, file)
    return file.getvalue()


def test_the_page_is_whole_and_names_are_no_markup():
    text = written(HISTORY)

    parser = Balance()
    parser.feed(text)
    assert parser.open == []
    assert "<b>x" not in text
    data = json.loads(parser.scripts[0])
    assert data["names"] == ["j-1 train", "j-2 </script><b>x"]
    assert data["capacity_bytes"] == 80 * GIB
    assert data["moments"][4][1:] == [
        [10 * GIB, 70 * GIB],
        [50 * GIB, 0],
        [0, 0],
    ]
    assert "80 GiB of 80 GiB" in text  # the most ever held
    assert "50 GiB to the host within 200 ms" in text


def test_nothing_is_drawn_of_the_host_where_nothing_went_there():
    assert "On the host" in written(HISTORY)
    quiet = MemoryHistory(end_ns=S, curves=(curve(point(0, 1)),), gpus=(GPU,))
    assert "On the host" not in written(quiet)


def test_the_page_says_how_much_was_in_files():
    filed = curve(point(0, 5), point(1, 0, 5, filed=3), point(2, 0, 5))

    text = written(MemoryHistory(end_ns=3 * S, curves=(filed,), gpus=(GPU,)))

    assert "most in files" in text
    assert "3 GiB" in text
    assert "3 GiB" not in written(HISTORY)


def test_without_jobs_the_page_says_so():
    assert "No job has used a GPU" in written(MemoryHistory(end_ns=S, curves=(), gpus=(GPU,)))


def test_in_a_trace_moves_lie_beside_work():
    file = io.StringIO()
    with TraceWriter(file) as trace:
        JobTrace(trace, str).finish(HISTORY)

    events = json.loads(file.getvalue())["traceEvents"]
    slices = [(e["tid"], e["name"]) for e in events if e["ph"] == "X"]
    tracks = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert [(tracks[tid], name) for tid, name in slices] == [
        ("j-1 train computes", "50% of the gpu"),
        ("j-1 train is moved", "50 GiB to the host"),
        ("j-1 train is moved", "50 GiB back to the gpu"),
    ]
    counted = {e["name"] for e in events if e["ph"] == "C"}
    assert {"j-1 train swapped bytes", "j-2 </script><b>x waiting bytes"} <= counted
    assert "j-2 </script><b>x swapped bytes" not in counted


CURVE = ScalingCurve(
    sm_counts=(33, 66, 132),
    iteration_ns=(8_000_000, 4_000_000, 3_900_000),
    source="predicted",
    gamma=0.0,
    recorded_sms=132,
    recorded_ns=3_900_000,
    knee_sms=66,
)
PART = JobPart(
    job="j-2",
    display_name="</script><b>x",
    priority="batch",
    asked="",
    asked_sms=None,
    given_sms=66,
    owed_ratio=None,
    required_sms=None,
    proposed_sms=66,
    why="",
    scaling=CURVE,
    doubt="",
    why_no_set="",
    predicted_ns=4_000_000,
    measured_ns=5_000_000,
)
UNKNOWN = replace(PART, job="j-9", display_name="unknown", scaling=None, doubt="graphs only")
PARTITION = Partition(gpu=replace(GPU, sm_count=132), part_sms=2, jobs=(PART, UNKNOWN))


def test_scaling_curves_are_drawn_with_the_knee_and_what_it_is_now():
    file = io.StringIO()
    page.write(HISTORY, file, partitions=[PARTITION])
    text = file.getvalue()

    assert 'd="M110.0 216.0L379.0 117.5' in text  # no SMs; then a quarter, with 49 % of the speed
    assert text.count('class="knee" cx="648.0"') == 1  # in the middle
    assert "recorded on 132 SMs: 3.9 ms" in text
    assert "now, on 66 SMs: 5 ms" in text
    assert "20.0%" in text  # compared with the predicted 4 ms
    assert "<b>x" not in text
    assert "unknown" not in text


def test_what_was_computed_before_the_last_seconds_is_not_of_them():
    steady = curve(point(0, 1), point(10, 1, gpu_s=5, sm_s=40), point(20, 1, gpu_s=10, sm_s=80))

    (only,) = since(replace(HISTORY, curves=(steady,)), 8 * S).curves

    assert [work.share for work in work_of(only)] == [0.5, 0.5]
    assert [m.resident_bytes for m in occupation_of([only])] == [(4,), (4,), (0,)]


class Daemon:
    """A daemon's answers."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def memory_history(self):
        return HISTORY

    def partitions(self):
        return [PARTITION]

    def jobs(self, *, show_finished):
        return []

    def trace(self, *, seconds):
        yield TraceEvent(kind="turn", time_ns=41 * S, jobs=("j-1",), gpus=(0,))
        yield TraceEvent(kind="turn", time_ns=43 * S, jobs=("j-2",), gpus=(0,))


@pytest.fixture
def tandem(monkeypatch, capsys):
    def run(*words):
        monkeypatch.setattr("tandem.cli.report.open_client", Daemon)
        monkeypatch.setattr("tandem.cli._output.open_client", Daemon)
        monkeypatch.setattr(sys, "argv", ["tandem", *map(str, words)])
        code = cli.main()
        return code, *capsys.readouterr()

    return run


def test_the_command_writes_a_page_or_json(tandem, tmp_path):
    code, out, _ = tandem("report", "-o", tmp_path / "x.html", "--last", "12s")

    assert (code, out) == (0, f"wrote {tmp_path / 'x.html'}: 1 job\n")
    assert "time shown</span><b>12 s" in (tmp_path / "x.html").read_text()
    code, out, _ = tandem("report", "--json")
    assert json.loads(out)["curves"][1]["points"][1]["resident_bytes"] == 70 * GIB


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--json", "-o", "x.html"], "give only one of them"),
        (["--last", "0s"], "--last '0s' is no time at all"),
    ],
)
def test_what_would_be_left_unsaid_is_refused(tandem, tmp_path, monkeypatch, words, complaint):
    monkeypatch.chdir(tmp_path)

    code, out, err = tandem("report", *words)

    assert (code, out) == (2, "")
    assert complaint in err
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_told(tandem, tmp_path):
    code, _, err = tandem("report", "-o", tmp_path / "no" / "x.html")

    assert code == 2
    assert "choose another -o" in err


def slices_in(path):
    rows = json.loads(path.read_text())["traceEvents"]
    return [(row["name"], row["ts"], row["dur"]) for row in rows if row["ph"] == "X"]


def test_a_trace_is_of_what_comes(tandem, tmp_path, monkeypatch):
    code, _, _ = tandem("trace", "record", "-o", tmp_path / "x.json", "--seconds", "3")

    assert code == 0
    events = json.loads((tmp_path / "x.json").read_text())["traceEvents"]
    assert {e["ts"] for e in events if e["ph"] == "C"} == {0}  # from the start of the recording
    assert slices_in(tmp_path / "x.json") == [("j-1", 1e6, 2e6), ("j-2", 3e6, 0)]


@pytest.mark.parametrize(
    ("end", "status"), [(KeyboardInterrupt, 130), (UnavailableError("gone"), 7)]
)
def test_a_trace_that_ends_early_has_what_there_was(tandem, tmp_path, monkeypatch, end, status):
    whole = Daemon.trace

    def trace(self, *, seconds):
        yield from whole(self, seconds=seconds)
        raise end

    monkeypatch.setattr(Daemon, "trace", trace)

    code, _, err = tandem("trace", "record", "-o", tmp_path / "x.json")

    assert code == status
    assert err.startswith(f"tandem: note: '{tmp_path / 'x.json'}' has what was recorded so far\n")
    assert len(slices_in(tmp_path / "x.json")) == 2


def test_a_trace_outlives_the_daemon_that_names_jobs(tandem, tmp_path, monkeypatch):
    def gone(self, **_):
        raise UnavailableError("gone")

    def trace(self, *, seconds):
        yield TraceEvent(kind="step", time_ns=41 * S, jobs=("j-1",), gpus=(0,))
        yield TraceEvent(kind="step", time_ns=42 * S, jobs=("j-1",), gpus=(0,))
        monkeypatch.setattr(Daemon, "memory_history", gone)
        gone(self)

    monkeypatch.setattr(Daemon, "trace", trace)
    monkeypatch.setattr(Daemon, "jobs", gone)

    code, _, _ = tandem("trace", "record", "-o", tmp_path / "x.json")

    assert code == 7
    assert slices_in(tmp_path / "x.json") == [("iteration", 1e6, 1e6)]


def test_who_is_refused_a_trace_gets_no_file(tandem, monkeypatch):
    def trace(self, *, seconds):
        raise CapacityError("one records already")

    monkeypatch.setattr(Daemon, "trace", trace)

    code, out, _ = tandem("trace", "record", "-o", "-")

    assert (code, out) == (5, "")


@pytest.mark.parametrize(
    ("text", "status"), [("0", 2), ("-1", 2), ("x", 2), ("nan", 2), ("601", 0)]
)
def test_how_long_a_recording_may_be_is_for_the_daemon_to_say(tandem, tmp_path, text, status):
    code, _, _ = tandem("trace", "record", "-o", tmp_path / "x.json", "--seconds", text)

    assert code == status
