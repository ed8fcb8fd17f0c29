"""Promises of the driver API, each tested once, runnable on any device.

    TEST_IMAGE=kernels.so python tests/conformance/bodies TOPIC NAME

A topic is a module in this folder. Each public function in it is one conformance test, which
test_conformance.py runs in its own process. With `--serve` the bodies to run are read from stdin,
one JSON object a line, and each runs in a fork, which saves starting Python every time.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import tempfile
from pathlib import Path

SKIPPED = 77  # exit status if the device lacks what the body tests


def serve() -> tuple[str, str] | None:
    """Answer requests. Returns in a fork, with the body to run there, and at the end of input."""
    for topic in Path(__file__).parent.glob("[!_]*.py"):
        importlib.import_module(topic.stem)
    gc.freeze()  # else each child's collector touches all that was imported, and copies it
    for line in sys.stdin:
        wanted = json.loads(line)
        with tempfile.TemporaryFile() as output:
            child = os.fork()
            if child == 0:
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                os.dup2(output.fileno(), 1)
                os.dup2(output.fileno(), 2)
                os.environ.clear()
                os.environ.update(wanted["env"])
                return wanted["topic"], wanted["name"]
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            output.seek(0)
            said = output.read().decode(errors="replace")
        print(json.dumps({"status": status, "said": said}), flush=True)
    return None


def run(topic: str, name: str) -> None:
    """Run one body."""
    body = getattr(importlib.import_module(topic), name)
    gpu = importlib.import_module("gpu")
    try:
        body()
    except gpu.NothingToTest as reason:
        print(reason, file=sys.stderr)
        sys.exit(SKIPPED)
    except AssertionError:
        print("the driver's newest answers:", *gpu.ANSWERS, file=sys.stderr)
        raise


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parent.parent))
    chosen = serve() if sys.argv[1] == "--serve" else (sys.argv[1], sys.argv[2])
    if chosen is not None:
        run(*chosen)
