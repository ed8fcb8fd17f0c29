"""What the part `lifecycle` reports of a checkpoint that breaks the job."""

import pytest
from bench.gpu.parts.lifecycle import _steps, is_whole, wrong_words

from tandem.demo.process import WorkerError

DONE = {"result": "CUDA_SUCCESS", "ms": 3.0}


class Said:
    """A program that answers with these messages, and then falls silent."""

    def __init__(self, *messages):
        self._messages = list(messages)
        self.asked = 0

    def go(self):
        self.asked += 1

    def wait_for(self, event, *, deadline_s):
        if not self._messages:
            raise WorkerError(f"said no {event!r} within {deadline_s:g} s")
        return self._messages.pop(0)


def steps_of(*results):
    calls = ("lock", "checkpoint", "restore", "unlock")
    told = [
        {"event": "step", "call": c, **DONE, "result": r}
        for c, r in zip(calls, results, strict=False)
    ]
    return _steps(Said(*told), Said(*[{"used_bytes": 5}] * len(told)))


def test_a_restore_that_hangs_leaves_the_steps_before_it():
    found = steps_of("CUDA_SUCCESS", "CUDA_SUCCESS")

    assert found["checkpoint"] == {"call": "checkpoint", **DONE, "used_bytes": 5}
    assert "within" in found["restore"]["result"]
    assert "unlock" not in found


def test_a_refused_lock_ends_it():
    assert list(steps_of("CUDA_ERROR_NOT_SUPPORTED")) == ["lock"]


def test_a_process_that_is_broken_says_so_instead_of_its_wrong_words():
    holder = Said()

    assert "did not answer" in wrong_words(holder, {"lock": DONE, "restore": DONE})
    assert holder.asked == 1
    assert wrong_words(Said({"wrong_words": 0}), {"lock": DONE, "restore": DONE}) == 0


@pytest.mark.parametrize("why", ["CUDA_ERROR_UNKNOWN", "WorkerError: said nothing"])
def test_one_that_was_not_restored_is_not_waited_for(why):
    holder = Said()

    assert why in wrong_words(holder, {"lock": DONE, "restore": {"result": why}})
    assert holder.asked == 0


@pytest.mark.parametrize(
    ("saved", "wrong", "verdict"),
    [
        ("CUDA_SUCCESS", 0, True),
        ("CUDA_SUCCESS", 7, False),
        ("CUDA_SUCCESS", "not asked: it was not restored", False),
        ("CUDA_ERROR_NOT_SUPPORTED", "the process did not answer", True),
    ],
)
def test_a_driver_that_saves_none_has_lost_none(saved, wrong, verdict):
    assert is_whole({"checkpoint": {"result": saved}, "wrong_words": wrong}) is verdict


def test_a_process_that_could_not_be_locked_is_whole():
    assert is_whole({"lock": {"result": "CUDA_ERROR_NOT_FOUND"}, "wrong_words": 0})
