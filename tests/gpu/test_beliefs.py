"""Every question about the driver has a figure that answers it, and files that depend on it."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from bench.gpu.harness.beliefs import SETTLING, Belief, answer, beliefs_of, why_not

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "packaging"))

from generate_driver_facts import failures, measured


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("part", SETTLING)
def test_a_dry_run_answers_every_question(part, made, tmp_path):
    output = tmp_path / "figures.json"
    command = [sys.executable, "-m", f"bench.gpu.parts.{part}", "--where", "software"]
    done = subprocess.run(
        [*command, "--out", str(output), "--made", str(made)],
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
    assert importlib.util.find_spec(f"bench.gpu.parts.{part}") is not None
    for belief in beliefs_of(part):
        for path in belief.used_by:
            assert (ROOT / path).is_file(), path


BELIEF = Belief(
    question="q", believed="b", used_by=(), answers=("bare.cost.us", "bare.delay.us", "mps.cost.us")
)


def test_a_page_has_the_answers_of_a_part_that_failed_too():
    figures = {
        "failed": 1,
        "error": "ended after 480 s",
        "bare": {"cost": {"us": 1.5}, "delay": {"error": "TimeoutExpired: a|b"}},
        "mps": {"why_not": "not installed"},
    }

    assert measured(BELIEF, figures) == (
        "bare.cost.us: 1.5; bare.delay.us: **no answer** (TimeoutExpired: a\\|b); "
        "mps.cost.us: **no answer** (not installed)"
    )


def test_a_page_says_which_runs_of_a_part_failed():
    again = {"failed_again": {"failed": 124}}

    assert failures({"bare": {}}) == ""
    assert failures({"failed": 1}) == "; it ended with code 1"
    assert failures({"bare": {}} | again) == "; a later run ended with code 124"


@pytest.mark.parametrize(
    ("figures", "reason"),
    [
        ({"error": "ended after 480 s", "bare": {}}, "ended after 480 s"),
        ({"failed": 124}, "the part ended with code 124"),
        ({"bare": {"cost": {}}}, ""),
    ],
)
def test_the_reason_for_no_answer_is_the_nearest(figures, reason):
    assert why_not(figures, "bare.cost.us") == reason
