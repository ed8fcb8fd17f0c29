"""Part `demo`: `tandem demo` with its own programs, on this device."""

from __future__ import annotations

from typing import Any

from bench.gpu.harness.part import Bench, main, say
from tandem.demo.conductor import Conductor
from tandem.demo.report import build_report

SECONDS = 6.0


def measure(bench: Bench) -> dict[str, Any]:
    """Produce what `tandem demo --json` reports."""
    folder = bench.folder / "demo"
    folder.mkdir()
    conductor = Conductor.prepare(
        clock="real",
        seconds=bench.seconds(SECONDS),
        folder=folder,
        keep=False,
        say=say,
    )
    figures: dict[str, Any] = {}
    for results in conductor.runs():
        figures = {**build_report(results), "ok": results.all_correct}
        bench.save(figures)
    return figures


if __name__ == "__main__":
    main(measure)
