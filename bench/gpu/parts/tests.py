"""Part `tests`: runs the programs of tests/gpu on a real GPU.

On the CPU, runs those that need no GPU; on the software GPU, where torch does not start, the tests
are only collected.
"""

from __future__ import annotations

from typing import Any

from bench.gpu.harness.part import CPU, GPU, SOFTWARE, Bench, main
from bench.gpu.harness.pytests import run_tests

OPTIONS = {
    GPU: ["-m", "gpu"],
    CPU: ["-m", "not gpu"],
    SOFTWARE: ["-m", "gpu", "--collect-only"],
}


def measure(bench: Bench) -> dict[str, Any]:
    """Run the tests."""
    return run_tests("tests/gpu", OPTIONS[bench.where])


if __name__ == "__main__":
    main(measure)
