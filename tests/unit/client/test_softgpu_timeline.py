"""Timelines for people: the Perfetto trace and the HTML report, from made-up rows."""

import json
import resource
import subprocess
import sys

import pytest

from tandem.cli.__main__ import tandem as command
from tandem.errors import NotFoundError, UsageError
from tandem.softgpu._buckets import Buckets
from tandem.softgpu._perfetto import write_perfetto
from tandem.softgpu._report import notes, write_report
from tandem.softgpu._summary import OTHERS, summarize
from tandem.softgpu._timeline import Timeline, ends_early, find_timeline

HOSTILE = "</script><script>alert(1)</script>"


def row(start_ns, end_ns, **more):
    usual = {"gpu": 0, "context": 1, "pid": 41, "stream": 1, "kind": "kernel", "name": "vadd"}
    usual |= {"sms": 4, "bytes": 100, "op": 1, "client": 1, "part": 0, "last": True}
    return {"t_start_ns": start_ns, "t_end_ns": end_ns, **usual, **more}


@pytest.fixture
def timeline(tmp_path):
    def write(*rows, tail=""):
        path = tmp_path / "t.jsonl"
        path.write_text("".join(json.dumps(one) + "\n" for one in rows) + tail)
        return Timeline(path)

    return write


def test_a_summary_adds_up_parts_turns_and_waits(timeline):
    summary = summarize(
        timeline(
            row(1000, 2000, last=False, t_ready_ns=400),
            row(2000, 2050, kind="switch", client=2, name="", stream=0),
            row(2050, 2150, client=2, op=1, t_ready_ns=1000),
            row(2500, 3500, part=1, t_ready_ns=400),
            row(3500, 5500, kind="copy_htod", name="", sms=0, bytes=4000, op=2, t_ready_ns=3500),
        )
    )

    kernel = summary.kernels["vadd"]
    assert (kernel.launches, kernel.parts, kernel.total_ns) == (2, 3, 2100)
    assert summary.streams[1, 1].waited_ns == 600 + 500
    assert summary.streams[1, 1].longest_wait_ns == 600
    assert summary.streams[2, 1].waited_ns == 1050
    assert (summary.switches, summary.switch_ns, summary.clients[2].turns) == (1, 50, 1)
    assert (summary.moves[0, "copy_htod"].bytes, summary.length_ns) == (4000, 4500)


@pytest.mark.slow
def test_the_memory_of_a_summary_is_bounded(timeline):
    rows = (row(i * 10, i * 10 + 5, name=f"k{i}", op=i, stream=i % 5000) for i in range(24_000))

    summary = summarize(timeline(*rows))

    assert len(summary.kernels) <= 2001
    assert summary.kernels[OTHERS].launches == 24_000 - 2000
    assert len(summary.spans) <= 20_000
    assert {"kernels", "streams"} <= summary.lumped


@pytest.mark.slow
def test_what_lies_too_close_together_is_drawn_as_one(timeline):
    summary = summarize(timeline(*(row(i * 10, i * 10 + 5, op=i) for i in range(24_000))))

    assert 0 < len(summary.spans) <= 20_000
    assert sum(span.count for span in summary.spans) == 24_000


def test_buckets_keep_the_sum_however_long_the_run():
    buckets = Buckets()

    for start_ns in range(5_000, 10_000_000, 1_000_000):
        buckets.add(start_ns, start_ns + 500_000, 8.0)

    assert sum(buckets.levels()) * buckets.width_ns == pytest.approx(10 * 500_000 * 8)
    assert max(buckets.levels()) == pytest.approx(8.0)


def test_the_trace_has_a_process_for_each_client_and_a_track_for_each_stream(timeline, tmp_path):
    source = timeline(
        row(1000, 2000),
        row(2000, 2050, kind="switch", client=2, name="", stream=0),
        row(2050, 3050, client=2, pid=42, stream=7),
    )

    assert write_perfetto(source, tmp_path / "trace.json") == 3

    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert names == {"client 1 (pid 41)", "client 2 (pid 42)", "GPU 0"}
    assert [(e["pid"], e["tid"], e["ts"]) for e in events if e["name"] == "vadd"] == [
        (1, 1, 1.0),
        (2, 7, 2.05),
    ]
    assert any(e["ph"] == "C" and e["name"] == "SMs in use" for e in events)


def test_a_report_escapes_names_and_needs_no_network(timeline, tmp_path):
    names = [HOSTILE, "<img src=x onerror=alert(1)>", "\ud800", "$title"]
    source = timeline(*(row(i * 100, i * 100 + 50, name=n) for i, n in enumerate(names)))

    write_report(source, {"devices": [{"name": HOSTILE}], "clock": "<b>"}, tmp_path / "r.html")

    page = (tmp_path / "r.html").read_text()
    assert HOSTILE not in page
    assert "<img" not in page
    assert "<b>&lt;b&gt;</b>" in page
    assert page.count("<script") == 2
    assert "http:" not in page
    assert "https:" not in page


def test_the_sms_are_drawn_by_who_has_them(timeline, tmp_path):
    about = {"devices": [{"name": "x", "sm_count": 8}]}
    both = timeline(
        row(1000, 5000, sms=6), row(3000, 9000, client=2, pid=42, sms=2), row(6000, 9000, sms=4)
    )
    summary = write_report(both, about, tmp_path / "both.html")

    first, second = (buckets.levels(1000) for buckets in summary.occupants[0].values())
    assert first == [6, 6, 6, 6, 0, 4, 4, 4]
    assert second == [0, 0, 2, 2, 2, 2, 2, 2]
    page = (tmp_path / "both.html").read_text()
    assert "client 1, pid 41" in page
    assert "client 2, pid 42" in page
    assert page.count("<path style='fill:hsl(") == 2
    write_report(timeline(row(1000, 5000)), about, tmp_path / "one.html")
    assert "client 1, pid 41" not in (tmp_path / "one.html").read_text()


def test_a_cut_off_timeline_is_used_as_far_as_it_goes(timeline, tmp_path):
    source = timeline(row(0, 10), tail='{"t_start_ns": 5, "t_e')

    summary = write_report(source, {}, tmp_path / "r.html")

    assert summary.rows == 1
    assert notes(source, summary)[0].startswith("one line was left out")


@pytest.mark.parametrize(
    "line",
    [
        "[]",
        "null",
        "1e999",
        '{"t_start_ns":[]}',
        "[" * 30_000,
        json.dumps(row(5, 1)),
        json.dumps(row(0, 1, gpu={})),
        "\xff\xfe",
    ],
)
def test_lines_that_are_no_rows_are_counted(timeline, line):
    source = timeline(tail=line + "\n")

    assert summarize(source).rows == 0
    assert source.skipped_lines >= 1


def test_an_empty_timeline_makes_a_report_that_says_so(timeline, tmp_path):
    write_report(timeline(), {}, tmp_path / "r.html")

    assert "The timeline has no operation." in (tmp_path / "r.html").read_text()


def test_a_folder_stands_for_the_timeline_its_device_wrote(tmp_path):
    path = tmp_path / "else.jsonl"
    path.write_text("")
    about = {"timeline": str(path), "profile": "tiny"}
    (tmp_path / "softgpu.json").write_text(json.dumps(about))

    assert find_timeline(tmp_path) == (path, about)
    assert find_timeline(path) == (path, about)
    with pytest.raises(NotFoundError, match="no timeline in"):
        find_timeline(tmp_path.parent)


def test_a_missing_timeline_and_one_that_is_a_folder_are_errors(tmp_path):
    with pytest.raises(NotFoundError, match="there is no timeline"):
        summarize(Timeline(tmp_path / "none"))
    with pytest.raises(UsageError, match="cannot be read"):
        summarize(Timeline(tmp_path))


def test_the_timeline_is_not_overwritten_by_what_is_made_of_it(timeline):
    path = str(timeline(row(0, 10)).path)

    with pytest.raises(UsageError, match="is the timeline itself"):
        command(["softgpu", "timeline", path, "-o", path], standalone_mode=False)


@pytest.mark.slow
def test_a_long_timeline_fits_into_little_memory(tmp_path):
    path = tmp_path / "t.jsonl"
    with path.open("w") as file:
        for i in range(200_000):
            line = row(i * 10, i * 10 + 9, op=i, stream=i % 9, name=f"k{i % 20_000}")
            file.write(json.dumps(line) + "\n")
    limit = 160 << 20

    def stay_small():
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))

    words = ["softgpu", "report", str(path), str(tmp_path / "r.html")]
    subprocess.run(
        [sys.executable, "-m", "tandem.cli", *words],
        check=True,
        preexec_fn=stay_small,
        capture_output=True,
    )

    assert (tmp_path / "r.html").stat().st_size < 4 << 20


def test_a_timeline_that_says_that_it_ends_early_is_believed(timeline):
    source = timeline(row(0, 10), tail='{"incomplete":true}   \n')

    assert "The timeline ends early: its disk was full, or it was not allowed to grow." in notes(
        source, summarize(source)
    )
    assert (source.skipped_lines, ends_early(source.path)) == (0, True)
    assert not ends_early(timeline(row(0, 10)).path)


@pytest.mark.parametrize("words", [("report",), ("timeline", "-o")], ids=["report", "timeline"])
def test_what_is_no_timeline_is_refused_and_the_output_kept(tmp_path, words):
    source, output = tmp_path / "run.trace", tmp_path / "out"
    source.write_text('{"format":"tandem-trace"}\nnot json\n')
    output.write_text("before")
    name, *option = words

    arguments = [str(source), *option, str(output)]
    with pytest.raises(UsageError, match="is no timeline of a software GPU"):
        command(["softgpu", name, *arguments], standalone_mode=False)

    assert output.read_text() == "before"


def test_without_the_device_s_settings_the_report_claims_no_total_of_sms(timeline, tmp_path):
    output = tmp_path / "r.html"

    write_report(timeline(row(0, 1000, sms=4)), {}, output)

    assert "4 (of how many is not known; 4 at most) on average" in output.read_text()
