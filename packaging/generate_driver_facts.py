"""Write docs/driver-facts.md: what we believe about NVIDIA's driver, and what a GPU showed.

    python packaging/generate_driver_facts.py

The beliefs are in the parts of bench/gpu, the answers in the results of `make gpu`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gpu_results

sys.path.insert(0, str(gpu_results.ROOT))  # for `bench`

from bench.gpu.harness.beliefs import SETTLING, Belief, answer, beliefs_of, why_not

OUTPUT = gpu_results.ROOT / "docs"
NAME = "driver-facts.md"
REASON = 120  # longest reason for a missing answer, in characters

PREFACE = """\
# What we believe about NVIDIA's driver, and what a GPU showed

Made by `python packaging/generate_driver_facts.py` from the parts in `bench/gpu` and the files
under `bench/results`; do not edit. [How to run a part](benchmarks.md#on-a-real-gpu). What is
*believed*, until a GPU has answered, was read in documentation or in the sources of other projects.

"""


def generate(output: Path) -> None:
    """Write the page into `output`."""
    (output / NAME).write_text(PREFACE + "".join(_lines()))


def _lines() -> Iterator[str]:
    for part in SETTLING:
        found = gpu_results.newest(part)
        yield f"## `make gpu PART={part}`\n\n"
        if found is None:
            yield "Not measured yet.\n\n"
        else:
            gpu = found.figures.get("gpu") or "GPU not recorded"
            yield f"{found.path.name[:10]}, {gpu}: `bench/results/{found.path.name}`"
            yield f"{failures(found.figures)}\n\n"
        yield "| question | believed | used by | measured |\n|---|---|---|---|\n"
        for belief in beliefs_of(part):
            cell = "not measured yet" if found is None else measured(belief, found.figures)
            used_by = ", ".join(f"`{path}`" for path in belief.used_by)
            yield f"| {belief.question} | {belief.believed} | {used_by} | {cell} |\n"
        yield "\n"


def failures(figures: Mapping[str, Any]) -> str:
    """Say which runs of a part failed: the run that gave these figures, or a later one."""
    runs = {"it": figures, "a later run": figures.get("failed_again", {})}
    codes = {run: found["failed"] for run, found in runs.items() if "failed" in found}
    return "".join(f"; {run} ended with code {code}" for run, code in codes.items())


def measured(belief: Belief, figures: Mapping[str, object]) -> str:
    """A table cell: each answer, or why there is none."""
    return "; ".join(f"{path}: {_said(figures, path)}" for path in belief.answers)


def _said(figures: Mapping[str, object], path: str) -> str:
    what = answer(figures, path)
    if what is not None:
        return str(what).replace("|", "\\|")
    reason = why_not(figures, path).replace("|", "\\|")
    return f"**no answer** ({reason[:REASON]})" if reason else "**no answer**"


if __name__ == "__main__":
    generate(OUTPUT)
