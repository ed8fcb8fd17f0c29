"""How a part runs tests: several at a time, then those that failed once more by themselves."""

import pytest
from bench.gpu.harness import pytests
from bench.gpu.harness.pytests import run_tests

TESTS = """
import os
import pathlib
import pytest

def test_never():
    pytest.skip("not here")

@pytest.mark.parametrize("number", range(4))
def test_it(number):
    assert number != 1, "never"
    assert number != 2 or "PYTEST_XDIST_WORKER" not in os.environ, "not beside others"
"""


@pytest.mark.slow
def test_what_fails_beside_others_is_tried_by_itself(tmp_path, monkeypatch):
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # set by whoever runs this test

    found = run_tests(".", [], at_a_time=2)

    assert found["failed_beside_others"] == [
        "test_some.py::test_it[1]",
        "test_some.py::test_it[2]",
    ]
    assert list(found["failures"]) == ["test_some.py::test_it[1]"]
    assert "never" in found["failures"]["test_some.py::test_it[1]"]
    assert found["passed"] == 3
    assert found["skipped"] == 1
    assert found["ok"] is False


def test_a_second_try_that_never_reports_leaves_what_is_known(monkeypatch):
    first = {"pytest_exit_code": 1, "passed": 3, "skipped": 2, "failures": {"a": "no"}, "ok": False}
    tries = iter([first, {"pytest_exit_code": -9, "ok": False}])
    monkeypatch.setattr(pytests, "_run", lambda _: next(tries))
    monkeypatch.setattr(pytests.importlib.util, "find_spec", lambda _: True)

    assert run_tests(".", [], at_a_time=2) == {**first, "failed_beside_others": ["a"]}


def test_one_at_a_time_is_tried_once(tmp_path, monkeypatch):
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)

    found = run_tests(".", [])

    assert list(found["failures"]) == ["test_some.py::test_it[1]"]
    assert found["passed"] == 3
    assert "failed_beside_others" not in found


def test_tests_that_were_interrupted_are_an_error(tmp_path, monkeypatch):
    (tmp_path / "test_some.py").write_text("def test_it():\n    raise KeyboardInterrupt\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    monkeypatch.chdir(tmp_path)

    found = run_tests(".", [])

    assert found["error"] == "pytest ended with code 2 before all tests had run"
    assert found["ok"] is False
