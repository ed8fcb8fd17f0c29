"""Write docs/driver-facts.md: what we believe of NVIDIA's driver, and what a GPU said to it.

    python packaging/generate_driver_facts.py [--output FOLDER]

The beliefs stand in the parts of bench/gpu, the answers in the results of `make gpu`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import gpu_results

sys.path.insert(0, str(gpu_results.ROOT))  # for `bench`

from bench.gpu.beliefs import SETTLING, Belief, answer, beliefs_of

OUTPUT = gpu_results.ROOT / "docs"
NAME = "driver-facts.md"

PREFACE = """\
# What we believe of NVIDIA's driver, and what a GPU said

Made by `python packaging/generate_driver_facts.py` from the parts in `bench/gpu` and the files
under `bench/results`; do not edit. [How to run a part](benchmarks.md#on-a-real-gpu). Until a GPU
has answered, *believed* was read in documentation or in the sources of other projects.

"""


def main() -> int:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=OUTPUT, help="folder of the page")
    generate(parser.parse_args().output)
    return 0


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
            gpu = found.machine.get("gpu") or "GPU not recorded"
            yield f"{found.path.name[:10]}, {gpu}: `bench/results/{found.path.name}`\n\n"
        yield "| question | believed | used by | measured |\n|---|---|---|---|\n"
        for belief in beliefs_of(part):
            measured = "not measured yet" if found is None else _measured(belief, found)
            used_by = ", ".join(f"`{path}`" for path in belief.used_by)
            yield f"| {belief.question} | {belief.believed} | {used_by} | {measured} |\n"
        yield "\n"


def _measured(belief: Belief, found: gpu_results.Found) -> str:
    if "failed" in found.figures:
        return f"**the part failed**: code {found.figures['failed']}"
    said = ((path, answer(found.figures, path)) for path in belief.answers)
    return "; ".join(f"{path}: {'no answer' if what is None else what}" for path, what in said)


if __name__ == "__main__":
    sys.exit(main())
