"""When the time of a part of `make gpu` is over, it leaves what it has found."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FIRST_S = 100  # until the first figures


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "first"),
    [
        ("swap", "pinned_bytes_s"),
        ("proof", "programs"),
        ("same_results", "alone"),
        ("demo", "scenarios"),
        ("calls", "added_ns"),
        ("colocation", "scenarios"),
        ("throttle", "kept"),
    ],
)
def test_a_part_keeps_its_first_figures(part, first, made, tmp_path):
    output = tmp_path / "figures.json"
    command = [sys.executable, "-m", f"bench.gpu.parts.{part}", "--where", "software"]
    own = {k: v for k, v in os.environ.items() if not k.startswith(("TANDEM_", "LD_PRELOAD"))}
    command += ["--out", str(output), "--made", str(made)]
    with subprocess.Popen(command, cwd=ROOT, env=own, stderr=subprocess.DEVNULL) as child:
        wait_for(first, output, child)

        child.send_signal(signal.SIGINT)

        assert child.wait(timeout=60) == 1
    figures = json.loads(output.read_text())
    assert figures["error"].startswith("KeyboardInterrupt")
    assert figures["ok"] is False
    assert figures[first]


def wait_for(name, output, child):
    end = time.monotonic() + FIRST_S
    while not figures_in(output).get(name):
        assert child.poll() is None, "it ended before"
        assert time.monotonic() < end
        time.sleep(0.05)


def figures_in(output):
    try:
        return json.loads(output.read_text())
    except (OSError, ValueError):  # missing or incomplete
        return {}
