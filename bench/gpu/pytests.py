"""Runs a folder's tests for a part, and turns their report into figures."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

NO_TESTS = 5  # pytest's code for nothing selected
TAIL = 400  # characters of a failure's text that are kept


def run_tests(folder: str, options: Sequence[str]) -> dict[str, Any]:
    """Figures: how many tests, and the names and last words of those that failed."""
    with tempfile.TemporaryDirectory(prefix="tandem-gpu-") as scratch:
        report = Path(scratch) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += [f"--junitxml={report}", folder, *options]
        code = subprocess.run(command, check=False).returncode
        figures = _figures(report) if report.is_file() else {}
    return {"pytest_exit_code": code, **figures, "ok": code in {0, NO_TESTS}}


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
