"""Part `tests`: pytest -m gpu. In a dry run the tests only collect."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from bench.gpu.part import Bench, main

NO_TESTS = 5  # pytest's code for nothing selected


def measure(bench: Bench) -> dict[str, Any]:
    """Run them and report pytest's exit code."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider"]
    command += ["tests/gpu", *(["--collect-only"] if bench.dry else [])]
    code = subprocess.run(command, check=False).returncode
    return {"pytest_exit_code": code, "ok": code in {0, NO_TESTS}}


if __name__ == "__main__":
    main(measure)
