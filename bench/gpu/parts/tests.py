"""Part `tests`: programs on a real GPU, tests/gpu.

On the CPU those of them that need no GPU; on the software GPU, where torch does not start, the
tests are only collected.
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
    """What pytest found."""
    return run_tests("tests/gpu", OPTIONS[bench.where])


if __name__ == "__main__":
    main(measure)
