"""The time `tandem dag --format json` takes per operation: reading, building, analysing, writing.

Used by `bench/dag.py`, which shows it beside the engine's own time.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

from bench import recording
from bench.stage import NotMeasuredError

OPERATIONS = 100_000
RUN_S = 60.0


def ns_a_node(folder: Path) -> float:
    """CPU time per operation of the whole command, on a synthetic recording.

    Raises:
        NotMeasuredError: the command failed.
    """
    trace = folder / "made-up.trace"
    recording.write(trace, OPERATIONS)
    before_s = _children_s()
    words = ("dag", str(trace), "--format", "json", "-o", str(folder / "made-up.json"))
    command = [sys.executable, "-m", "tandem.cli.__main__", *words]
    child = subprocess.run(command, timeout=RUN_S, check=False)
    if child.returncode != 0:
        raise NotMeasuredError(f"tandem dag ended with {child.returncode}")
    return (_children_s() - before_s) * 1e9 / OPERATIONS


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
