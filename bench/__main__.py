"""`python -m bench NAME`: run one measurement. The last line printed is a JSON object."""

from __future__ import annotations

import argparse
import importlib
import json
import signal
import sys
from types import FrameType
from typing import Any, NoReturn

from bench.bars import progress
from bench.stage import FAILURES, OutOfTimeError

# name -> what it measures
BENCHES = {
    "launch": "what the shim adds to a launch, in nanoseconds",
    "cold": "the same of a launch behind much other code",
    "attach": "how long a crowd of processes needs to attach",
    "gate": "from an opened gate to the next launch, and from a busy server to the last one",
    "idle": "what the daemon costs with 100 attached processes that do nothing",
    "calls": "what the shim adds to a call of each class",
    "memory": "what allocations cost that the shim counts, or that can be moved",
    "partition": "sets of SMs that change, scaling curves, and mixes of networks",
    "start": "what preloading costs a program that never uses CUDA",
    "decide": "how long the scheduler takes to decide with 100 jobs",
    "policies": "requests of eight clients under five policies, in the simulator",
    "softgpu": "the software GPU: a launch, kernels a second, the device process's memory",
    "ptx": "how fast the software GPU executes PTX, beside the same kernels compiled by g++",
    "dag": "how fast the dependency graph of a job is built, and the memory of a node",
    "native": "telemetry the daemon drains a second, and the cost of looking at idle processes",
}
DEADLINE_S = 58
LATER_S = {
    "decide": 174,
    "memory": 174,
    "partition": 232,
    "policies": 174,
}  # those with several parts or many cases
INTERRUPTED, NOT_MEASURED = 130, 1


def main() -> int:
    """Run the measurement; return 1 if a figure is over its limit or could not be measured."""
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        epilog="\n".join(f"{name}: {what}" for name, what in BENCHES.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", choices=BENCHES)
    name = parser.parse_args().name
    # Signals become exceptions, so that the measurement always cleans up.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    signal.signal(signal.SIGALRM, _run_out)
    signal.alarm(LATER_S.get(name, DEADLINE_S))
    try:
        result = importlib.import_module(f"bench.{name}").run()
    except KeyboardInterrupt:
        progress("interrupted")
        return INTERRUPTED
    except FAILURES as error:
        result = {"bench": name, "error": str(error), "bars": {}}
        progress(f"not measured: {error}")
    print(json.dumps(result, allow_nan=False))
    return 0 if _is_good(result) else NOT_MEASURED


def _is_good(result: dict[str, Any]) -> bool:
    return bool(result["bars"]) and all(bar["ok"] for bar in result["bars"].values())


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _run_out(_number: int, _frame: FrameType | None) -> NoReturn:
    raise OutOfTimeError("it did not end in its time; is the machine busy?")


if __name__ == "__main__":
    sys.exit(main())
