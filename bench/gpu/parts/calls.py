"""Part `calls`: what the shim adds to a call when many threads make calls at the same time.

Measures the shim alone, on the empty driver, so it needs only the machine's CPUs. A dry run uses
two threads.
"""

from __future__ import annotations

from typing import Any

from bench import calls
from bench.bars import show_bars
from bench.gpu.harness.part import GPU, Bench, main
from bench.stage import NotMeasuredError

THREADS = 8


def measure(bench: Bench) -> dict[str, Any]:
    """Measure as `make bench BENCH=calls` does, with THREADS threads."""
    figures: dict[str, Any] = {}
    try:
        for figures in calls.results(threads=THREADS if bench.where == GPU else 2):
            bench.save(figures)
    except NotMeasuredError as error:
        return {**figures, "error": str(error), "ok": False}
    show_bars(figures["bars"])
    good = all(bar["ok"] for bar in figures["bars"].values())
    return {**figures, "ok": good or bench.where != GPU}


if __name__ == "__main__":
    main(measure)
