"""Runs a folder's tests for a part, and turns their report into figures."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

NO_TESTS = 5  # pytest's code for nothing selected
TAIL = 400  # characters of a failure's text that are kept
DEADLINE_S = 300.0  # then no further test is begun
END_S = 10.0  # for those that run then
# What our tests need, and nothing else that the machine's Python happens to have: to them a
# plugin's warning is an error.
PLUGINS = ("pytest_timeout", "_hypothesis_pytestplugin")


def run_tests(folder: str, options: Sequence[str], *, at_a_time: int = 1) -> dict[str, Any]:
    """Figures: how many tests, and the names and last words of those that failed.

    `at_a_time`: so many, where pytest-xdist is there.
    """
    with tempfile.TemporaryDirectory(prefix="tandem-gpu-") as scratch:
        report = Path(scratch) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += [f"--junitxml={report}", folder, *options]
        for plugin in PLUGINS:
            command += ["-p", plugin]
        if at_a_time > 1 and importlib.util.find_spec("xdist"):
            command += ["-p", "xdist.plugin", "-n", str(at_a_time), "--dist", "worksteal"]
        code = _code_of(command)
        figures = _figures(report) if report.is_file() else {}
    return {"pytest_exit_code": code, **figures, "ok": code in {0, NO_TESTS}}


def _code_of(command: Sequence[str]) -> int:
    """Pytest's exit code. When the time is over it is interrupted, and reports what it has.

    The same when we are interrupted ourselves.
    """
    environ = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    # A session of its own: Ctrl-C reaches it once, through us.
    child = subprocess.Popen(command, env=environ, start_new_session=True)
    for seconds, number in ((DEADLINE_S, signal.SIGINT), (END_S, signal.SIGKILL)):
        try:
            return child.wait(timeout=seconds)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            child.send_signal(number)
    return child.wait()


def _figures(report: Path) -> dict[str, Any]:
    suite = next(ElementTree.parse(report).iter("testsuite"))
    failed = {
        str(case.get("name")): (problem.text or "")[-TAIL:]
        for case in suite.iter("testcase")
        for problem in case
        if problem.tag in {"failure", "error"}
    }
    skipped = int(suite.get("skipped", "0"))
    passed = int(suite.get("tests", "0")) - skipped - len(failed)
    return {"passed": passed, "skipped": skipped, "failed": failed}
