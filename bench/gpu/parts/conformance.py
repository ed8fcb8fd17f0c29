"""Part `conformance`: checks the software driver's behaviour on the real one; bare and managed."""

from __future__ import annotations

from typing import Any

from bench.gpu.harness.part import GPU, Bench, main
from bench.gpu.harness.pytests import run_tests

AT_A_TIME = 8  # of several hundred programs, each of which takes a second to create its context


def measure(bench: Bench) -> dict[str, Any]:
    """Run the tests; in a dry run, on the software GPU's real clock."""
    chosen = ["-m", "gpu"] if bench.where == GPU else ["-m", "not gpu", "-k", "real or tandem"]
    return run_tests("tests/conformance", chosen, at_a_time=AT_A_TIME if bench.where == GPU else 1)


if __name__ == "__main__":
    main(measure)
