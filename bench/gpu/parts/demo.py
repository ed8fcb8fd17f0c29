"""Part `demo`: the main job with the demo's own programs, on this device."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from bench.gpu.harness.part import Bench, main

SECONDS = 6.0


def measure(bench: Bench) -> dict[str, Any]:
    """What `tandem demo --json` says."""
    command = [sys.executable, "-m", "tandem.cli", "demo", "--json"]
    command += ["--seconds", str(bench.seconds(SECONDS))]
    child = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if child.returncode != 0:
        return {"exit_code": child.returncode, "ok": False}
    return {**json.loads(child.stdout), "ok": True}


if __name__ == "__main__":
    main(measure)
