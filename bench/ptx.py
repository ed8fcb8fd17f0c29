"""How fast the software GPU executes PTX, beside the same kernels compiled by g++.

Both images run in one program, in turns, on the real clock of a device so fast that its model adds
no time. The count of instructions is the length of a kernel's loop times the turns of all lanes;
code before and after the loop is not counted, so the figures are a little too slow.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.bars import bar, progress, show, show_bars
from bench.stage import NotMeasuredError, Stage, stage
from tandem import softgpu

HERE = Path(__file__).parent
LIMIT_NS = 20.0  # per thread-instruction: 50 million a second on one core
ROUNDS = 5
RUN_S = 50.0


def run() -> dict[str, Any]:
    """Measure, print a table, return the result."""
    with stage() as place:
        progress("kernels interpreted and compiled, in turns")
        spent = _spent(place)
    figures: dict[str, float] = {}
    bars = {}
    for kernel, one in spent.items():
        instructions = one["turns"] * loop_length(kernel)
        nanoseconds = 1e9 * one["ptx_s"] / instructions
        figures[f"{kernel}_million_per_s"] = round(1e3 / nanoseconds, 1)
        figures[f"{kernel}_over_compiled"] = round(one["ptx_s"] / one["host_s"], 1)
        bars[f"{kernel}_ns"] = bar(nanoseconds, LIMIT_NS)
    print(f"ptx, best of {ROUNDS} rounds")
    show(figures, "")
    show_bars(bars)
    return {"bench": "ptx", **figures, "bars": bars}


def loop_length(kernel: str) -> int:
    """Count the instructions from the label of the kernel's only loop to the branch back to it."""
    lines = (HERE / "ptx.ptx").read_text().split(f".entry {kernel}(")[1].splitlines()
    body = [line.strip() for line in lines if line.strip() and ".pragma" not in line]
    for end, line in enumerate(body):
        label = line.split()[-1].rstrip(";") + ":"
        if " bra " in line.replace("\t", " ") and label in body[:end]:
            return end - body.index(label)
    raise NotMeasuredError(f"kernel {kernel} of ptx.ptx has no loop")


def _spent(place: Stage) -> dict[str, dict[str, float]]:
    image = place.folder / "ptx.so"
    softgpu.compile_kernels(HERE / "ptx.cu", image)
    command = [sys.executable, "-m", "bench.ptx_client", str(image), str(ROUNDS)]
    child = subprocess.run(
        command, env=place.env, capture_output=True, text=True, timeout=RUN_S, check=False
    )
    if child.returncode != 0:
        raise NotMeasuredError(child.stderr.strip().splitlines()[-1])
    found: dict[str, dict[str, float]] = json.loads(child.stdout)
    return found
