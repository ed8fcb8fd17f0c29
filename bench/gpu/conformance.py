"""Part `conformance`: what the software driver promises, asked of the real one; bare, managed."""

from __future__ import annotations

from typing import Any

from bench.gpu.part import GPU, Bench, main
from bench.gpu.pytests import run_tests


def measure(bench: Bench) -> dict[str, Any]:
    """What pytest found; in a dry run, on the software GPU's real clock."""
    chosen = ["-m", "gpu"] if bench.where == GPU else ["-m", "not gpu", "-k", "real or tandem"]
    return run_tests("tests/conformance", chosen)


if __name__ == "__main__":
    main(measure)
