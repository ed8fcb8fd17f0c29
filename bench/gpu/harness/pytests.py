"""Runs a folder's tests for a part and turns their report into figures."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from bench.gpu.harness.part import LIMIT_S, progress

PASSED, SOME_FAILED, NO_TESTS = 0, 1, 5  # pytest's exit codes; NO_TESTS: none was selected
MOST_AGAIN = 60  # tests to retry; if more fail, the cause is not interference
TAIL = 600  # characters kept of a failure's text
RESERVE_S = 40.0  # no further test begins once only this much of the part's time is left
END_S = 10.0  # for tests that are running then
# Only the plugins that our tests need, not others that the machine's Python happens to have: a
# plugin's warning would be an error in our tests.
PLUGINS = ("pytest_timeout", "_hypothesis_pytestplugin")


def run_tests(folder: str, options: Sequence[str], *, at_a_time: int = 1) -> dict[str, Any]:
    """Run tests; return how many there were, and the names and final output of those that failed.

    If pytest-xdist is installed, `at_a_time` tests run in parallel. Tests that fail in parallel are
    tried again one by one, since some measure how much of the device's memory is free.
    """
    if at_a_time == 1 or importlib.util.find_spec("xdist") is None:
        return _run([folder, *options])
    several = ["-p", "xdist.plugin", "-n", str(at_a_time), "--dist", "worksteal"]
    figures = _run([folder, *options, *several])
    failed = sorted(figures.get("failures", ()))
    if not 0 < len(failed) <= MOST_AGAIN or figures["pytest_exit_code"] != SOME_FAILED:
        return figures
    again = _run([*failed, *options])
    if "failures" not in again:  # ended before it could report: keep the first result
        return {**figures, "failed_beside_others": failed}
    told = {name: again[name] for name in ("failures", "pytest_exit_code", "ok")}
    sums = {name: figures[name] + again[name] for name in ("passed", "skipped")}
    return {**figures, **told, **sums, "failed_beside_others": failed}


def _run(words: Sequence[str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="tandem-gpu-") as scratch:
        report = Path(scratch) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider"]
        command += [f"--junitxml={report}", *words]
        for plugin in PLUGINS:
            command += ["-p", plugin]
        code = _code_of(command)
        figures = _figures(report) if report.is_file() else {}
    if code not in {PASSED, SOME_FAILED, NO_TESTS}:
        figures["error"] = f"pytest ended with code {code} before all tests had run"
    return {"pytest_exit_code": code, **figures, "ok": code in {PASSED, NO_TESTS}}


def _code_of(command: Sequence[str]) -> int:
    """Run pytest; return its exit code.

    When the time is up, or we are interrupted, pytest is interrupted and reports what it has.
    """
    environ = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    # A session of its own, so that Ctrl-C reaches pytest only once, through us.
    child = subprocess.Popen(command, env=environ, start_new_session=True)
    left_s = min(max(progress.end_s(reserve_s=RESERVE_S) - time.monotonic(), END_S), LIMIT_S)
    for seconds, number in ((left_s, signal.SIGINT), (END_S, signal.SIGKILL)):
        try:
            return child.wait(timeout=seconds)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            child.send_signal(number)
    return child.wait()


def _figures(report: Path) -> dict[str, Any]:
    suite = next(ElementTree.parse(report).iter("testsuite"))
    failures = {
        _place_of(case): (problem.text or "")[-TAIL:]
        for case in suite.iter("testcase")
        for problem in case
        if problem.tag in {"failure", "error"}
    }
    skipped = int(suite.get("skipped", "0"))
    passed = int(suite.get("tests", "0")) - skipped - len(failures)
    return {"passed": passed, "skipped": skipped, "failures": failures}


def _place_of(case: ElementTree.Element) -> str:
    """The test's id as pytest accepts it: tests/folder/test_file.py::test_name[parameter]."""
    return f"{str(case.get('classname')).replace('.', '/')}.py::{case.get('name')}"
