"""Part `proof`: random driver programs come to the same bare and managed, on the real driver.

Without calls that a driver may answer with a crash; in a dry run on the software GPU, with them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.gpu.harness.part import GPU, Bench, main

SECONDS = 55.0
START_S = 10.0  # for compilers and processes
SOAK = "tests/proof/soak.py"


def measure(bench: Bench) -> dict[str, Any]:
    """How many programs, how many of them differ, and which calls they made."""
    options = ["--gpu"] if bench.where == GPU else []
    with tempfile.TemporaryDirectory(prefix="tandem-gpu-") as scratch:
        result = Path(scratch) / "result.json"
        options += ["--seconds", str(START_S + bench.seconds(SECONDS)), "--result", str(result)]
        code = subprocess.run([sys.executable, SOAK, *options], check=False).returncode
        figures = json.loads(result.read_text()) if result.is_file() else {}
    return {"exit_code": code, **figures, "ok": code == 0 and figures.get("programs", 0) > 0}


if __name__ == "__main__":
    main(measure)
