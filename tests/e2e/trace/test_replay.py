"""A replay does what the recorded program did: the same kernels, in the same order, as long."""

import json
import sys
from collections import defaultdict

import pytest
from traced_program import THREADS, TRAINER, VADD

ROUNDING_NS = 1  # of each kernel: the timeline has whole nanoseconds
ROUNDING_RATIO = 1e-6  # event times are floats of milliseconds


def rows(timeline, kind="kernel"):
    found = map(json.loads, timeline.read_text().splitlines())
    return [row for row in found if row["kind"] == kind]


def kernels_by_stream(timeline):
    """The names in each stream, streams in order of their first kernel."""
    streams = defaultdict(list)
    for row in rows(timeline):
        streams[row["pid"], row["stream"]].append(row["name"])
    return list(streams.values())


def busy_ns(timeline):
    return sum(row["t_end_ns"] - row["t_start_ns"] for row in rows(timeline))


def record(tandem, program, path, *words):
    options = ("--device-times", "-o", path)
    tandem("trace", "calls", *options, "--", sys.executable, "-c", program, *words)
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "speed"), [(TRAINER, "asap"), (THREADS, "recorded")], ids=["trainer", "threads"]
)
def test_order_and_busy_time_are_those_of_the_recording(program, speed, tandem, tmp_path):
    path = record(tandem, program, tmp_path / "x.trace")
    replayed = tmp_path / "replayed.jsonl"
    words = ("--json", "--speed", speed, "--profile", "tiny", "--timeline", replayed)

    result = json.loads(tandem("replay", *words, path).out)

    count = len(rows(replayed))
    assert kernels_by_stream(replayed) == kernels_by_stream(tandem.timeline)
    before, after = busy_ns(tandem.timeline), busy_ns(replayed)
    assert after == pytest.approx(before, abs=count * ROUNDING_NS, rel=ROUNDING_RATIO)
    assert result["recorded_counts"] == result["replayed_counts"]
    assert result["replayed_kernel_ns"] == after
    assert (result["refused"], result["untimed_launches"]) == ({}, 0)
    # The profile is that of the recording: copies last as long as well.
    assert result["replayed_makespan_ns"] == pytest.approx(result["recorded_makespan_ns"], rel=1e-4)


@pytest.mark.slow
def test_a_replay_is_the_same_every_time(tandem, tmp_path):
    path = record(tandem, THREADS, tmp_path / "x.trace")
    timelines = []
    for number in range(2):
        timeline = tmp_path / f"{number}.jsonl"
        tandem("replay", "--speed", "recorded", "--timeline", timeline, path)
        timelines.append([(r["t_start_ns"], r["name"], r["stream"]) for r in rows(timeline)])

    assert timelines[0] == timelines[1]


@pytest.mark.slow
def test_the_table_compares_recorded_and_replayed(tandem, recording):
    lines = tandem("replay", "--profile", "tiny", recording).out.splitlines()
    cells = {line.split()[0]: line.split()[1:] for line in lines[2:]}

    assert lines[0] == "replayed on software GPU tiny virtual clock: 1 processes, 1 threads"
    assert cells["launch"] == ["3", "3"]
    assert cells["kernels"] == ["36.86us", "36.86us"]


@pytest.mark.slow
def test_without_device_times_kernels_take_none_and_it_says_so(tandem, tmp_path):
    path = tmp_path / "x.trace"
    tandem("trace", "calls", "-o", path, "--", sys.executable, "-c", VADD)

    done = tandem("replay", path)

    assert "3 launches have no time of their own" in done.out
    assert "record with --device-times" in done.out


def test_what_is_no_recording_is_refused(tandem, tmp_path):
    path = tmp_path / "x"
    path.write_text("nothing\n")

    done = tandem("replay", path, check=False)

    assert done.code == 2
    assert done.err.startswith(f"error: '{path}' is no recording of `tandem trace calls`")
