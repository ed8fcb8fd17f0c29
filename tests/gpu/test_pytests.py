"""How a part runs tests: several at a time, and those that mind that once more."""

import pytest
from bench.gpu.pytests import run_tests

TESTS = """
import os
import pathlib
import pytest

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
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # of who runs this

    found = run_tests(".", [], at_a_time=2)

    assert found["failed_beside_others"] == [
        "test_some.py::test_it[1]",
        "test_some.py::test_it[2]",
    ]
    assert list(found["failed"]) == ["test_some.py::test_it[1]"]
    assert "never" in found["failed"]["test_some.py::test_it[1]"]
    assert found["passed"] == 3
    assert found["ok"] is False


def test_one_at_a_time_is_tried_once(tmp_path, monkeypatch):
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)

    found = run_tests(".", [])

    assert list(found["failed"]) == ["test_some.py::test_it[1]"]
    assert found["passed"] == 3
    assert "failed_beside_others" not in found
