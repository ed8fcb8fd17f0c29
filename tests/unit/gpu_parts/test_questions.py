"""A part's question that fails, or for which no time is left."""

import json
import subprocess
import time

import pytest
from bench.gpu.harness import questions
from bench.gpu.harness.part import Progress
from bench.gpu.harness.questions import all_answered, answered

from tandem.demo.process import WorkerError


@pytest.mark.parametrize(
    "failure", [WorkerError("refused"), subprocess.TimeoutExpired("cmd", 3), KeyError("spans")]
)
def test_one_that_fails_says_why(failure):
    def question():
        raise failure

    assert type(failure).__name__ in answered("it", question)["error"]


def test_a_bug_is_not_taken_for_an_answer():
    def question():
        raise AssertionError

    with pytest.raises(AssertionError):
        answered("it", question)


@pytest.mark.parametrize(
    ("limit_s", "gone_s", "is_asked"),
    [(480, 445, True), (480, 455, False), (45, 30, True), (45, 37, False)],
)
def test_nothing_more_is_begun_when_little_time_is_left(monkeypatch, limit_s, gone_s, is_asked):
    began_s = time.monotonic() - gone_s
    monkeypatch.setattr(questions, "progress", Progress(began_s=began_s, limit_s=limit_s))
    asked = []

    found = answered("it", lambda: asked.append(1) or {})

    assert bool(asked) is is_asked
    assert ("not asked" in found.get("error", "")) is not is_asked


def test_answers_are_kept_where_the_figures_will_have_them(monkeypatch, tmp_path):
    kept = Progress(out=tmp_path / "figures.json")
    monkeypatch.setattr(questions, "progress", kept)

    answered("overlap.sets", lambda: {"share": 0.5})
    answered("overlap.whole", lambda: {}["share"])

    assert json.loads(kept.out.read_text()) == {
        "overlap": {"sets": {"share": 0.5}, "whole": {"error": "KeyError: 'share'"}}
    }


def test_one_error_anywhere_leaves_something_unanswered():
    assert all_answered({"mode": "time", "mps": {"why_not": "not installed"}})
    assert not all_answered({"mode": "time", "stall": {"alone": {"error": "late"}}})
