"""A replay does what the recorded program did: the same kernels, in the same order, for as long."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import pytest
from traced_program import THREADS, TRAINER, VADD

from tandem.errors import UnavailableError
from tandem.softgpu._query import device_status
from tandem.trace.records import CALL

ROUNDING_NS = 1  # of each kernel: the timeline has whole nanoseconds
ROUNDING_RATIO = 1e-6  # event times are float milliseconds


def rows(timeline, kind="kernel"):
    found = map(json.loads, timeline.read_text().splitlines())
    return [row for row in found if row["kind"] == kind]


def kernels_by_stream(timeline):
    """Return the kernel names of each stream; streams are in the order of their first kernel."""
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
    # The replay has the recording's profile, so copies take as long too.
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

    assert lines[0] == "replayed on software GPU tiny virtual clock: 1 process, 1 thread"
    assert cells["launch"] == ["3", "3"]
    assert cells["kernels"] == ["36.86us", "36.86us"]


@pytest.mark.slow
def test_without_device_times_kernels_take_none_and_it_says_so(tandem, tmp_path):
    path = tmp_path / "x.trace"
    tandem("trace", "calls", "-o", path, "--", sys.executable, "-c", VADD)

    done = tandem("replay", path)

    assert "3 launches have no recorded duration" in done.out
    assert "record with --device-times" in done.out


def stretched(recording, folder):
    """Return the same recording with a minute inserted before its last two calls."""
    data = bytearray(recording.read_bytes())
    calls = [at for at in range(data.index(b"\n") + 1, len(data), 64) if data[at + 8] == CALL]
    for at in calls[-2:]:
        ticks = int.from_bytes(data[at : at + 8], "little") + 60 * 10**9
        data[at : at + 8] = ticks.to_bytes(8, "little")
    path = folder / "stretched.trace"
    path.write_bytes(data)
    return path


def players_of(folder):
    """Wait until there is a process that plays, and return all of them."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with suppress(UnavailableError):
            for found in folder.glob("tandem-replay-*"):
                clients = json.loads(device_status(found))["clients"]
                if players := [c["pid"] for c in clients if c["role"] == "worker"]:
                    return players
        time.sleep(0.02)
    pytest.fail("no player has come up")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_replay_that_is_ended_leaves_nothing_behind(number, tandem, recording, tmp_path):
    words = ("replay", "--speed", "recorded", "--clock", "real", stretched(recording, tmp_path))
    with tempfile.TemporaryDirectory(prefix="tandem-") as folder:
        env = {**tandem.env, "TMPDIR": folder}
        replay = subprocess.Popen(tandem.command(*words), env=env, stderr=subprocess.PIPE)
        players = players_of(Path(folder))

        replay.send_signal(number)
        _, errors = replay.communicate(timeout=30)

        assert (replay.returncode, errors) == (128 + number, b"")
        assert os.listdir(folder) == []
    for pid in players:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_what_is_no_recording_is_refused(tandem, tmp_path):
    path = tmp_path / "x"
    path.write_text("nothing\n")

    done = tandem("replay", path, check=False)

    assert done.code == 2
    assert done.err.startswith(f"error: '{path}' is not a recording of `tandem trace calls`")
