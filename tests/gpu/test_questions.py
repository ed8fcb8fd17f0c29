"""A question of a part that fails, or for which no time is left."""

import subprocess

import pytest
from bench.gpu import questions
from bench.gpu.questions import answered

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


def test_nothing_more_is_begun_when_the_time_is_over(monkeypatch):
    asked = []
    monkeypatch.setattr(questions, "PART_S", -1.0)

    found = answered("it", lambda: asked.append(1) or {})

    assert "not asked" in found["error"]
    assert asked == []
