"""Every question about the driver has a figure that answers it, and files that depend on it."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from bench.gpu.beliefs import SETTLING, answer, beliefs_of

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("part", SETTLING)
def test_a_dry_run_answers_every_question(part, tmp_path):
    output = tmp_path / "figures.json"
    command = [sys.executable, "-m", f"bench.gpu.{part}", "--where", "software"]
    done = subprocess.run(
        [*command, "--out", str(output)],
        cwd=ROOT,
        env={k: v for k, v in os.environ.items() if not k.startswith(("TANDEM_", "LD_PRELOAD"))},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(output.read_text())

    for belief in beliefs_of(part):
        for path in belief.answers:
            assert answer(figures, path) is not None, path


@pytest.mark.parametrize("part", SETTLING)
def test_what_depends_on_a_belief_exists(part):
    assert importlib.util.find_spec(f"bench.gpu.{part}") is not None
    for belief in beliefs_of(part):
        for path in belief.used_by:
            assert (ROOT / path).exists(), path
