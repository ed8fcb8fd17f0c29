"""Runs a command, and ends it with everything it started when its time is up.

    python -m bench.gpu.harness.limit SECONDS COMMAND...

The programs of a part have sessions of their own, which a signal to one process group would miss.
So this process adopts their orphans and ends them, too. The exit code is the command's, or 124 if
its time was up.
"""

from __future__ import annotations

import contextlib
import ctypes
import signal
import subprocess
import sys

import psutil

PR_SET_CHILD_SUBREAPER = 36
GRACE_S = 25.0  # for MPS to end and for the figures to be written
GENERATIONS = 4
TIMED_OUT = 124


def main() -> int:
    """Run the command and leave no process behind."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    seconds, *command = sys.argv[1:]
    try:
        return run(command, float(seconds))
    finally:
        end_descendants()


def run(command: list[str], seconds: float) -> int:
    """Run the command; return its exit code as a shell does. Interrupt it when its time is up."""
    child = subprocess.Popen(command)
    try:
        code = child.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        print(f"not done after {seconds:g} s", file=sys.stderr, flush=True)
        child.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=GRACE_S)
        return TIMED_OUT
    return code if code >= 0 else 128 - code


def end_descendants() -> None:
    """Kill what is left, generation by generation; give up on a process stuck in its driver."""
    for _ in range(GENERATIONS):
        left = psutil.Process().children(recursive=True)
        if not left:
            return
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=5)


if __name__ == "__main__":
    sys.exit(main())
