"""Part `proof`: random driver programs have the same results bare and managed, on the real driver.

On a GPU they leave out calls that a driver may answer with a crash; a dry run on the software GPU
includes them. Programs that differ are kept beside the results as proof/NUMBER.json and .txt.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench.gpu.harness import children
from bench.gpu.harness.part import GPU, Bench, main, progress

SECONDS = 65.0  # including compilers and processes
DRY_PROGRAMS = 200
END_S = 10.0  # for the last programs
LOOK_S = 2.0
SOAK = "tests/proof/soak.py"


def measure(bench: Bench) -> dict[str, Any]:
    """Count the programs, those that differ, and the calls they made."""
    result = bench.folder / "result.json"
    left_s = progress.end_s(reserve_s=END_S) - time.monotonic()
    if bench.where == GPU:
        wanted = ["--gpu", "--seconds", str(min(SECONDS, left_s))]
    else:
        wanted = ["--programs", str(DRY_PROGRAMS), "--seconds", str(left_s)]
    places = ["--result", str(result), "--failed", str(bench.keep / "proof")]
    command = [sys.executable, SOAK, *wanted, *places]
    with children.running(command, os.environ) as child:
        while child.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                child.wait(timeout=LOOK_S)
            bench.save(_kept(result))
    figures = _kept(result)
    good = child.returncode == 0 and figures.get("programs", 0) > 0
    return {"exit_code": child.returncode, **figures, "ok": good}


def _kept(result: Path) -> dict[str, Any]:
    figures: dict[str, Any] = json.loads(result.read_text()) if result.is_file() else {}
    return figures


if __name__ == "__main__":
    main(measure)
