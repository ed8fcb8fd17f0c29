"""Samples how much of device 0's memory is in use: `python -m tandem.demo.memory.watch`.

A line on stdin ends it; its result is the largest amount.
"""

from __future__ import annotations

import select
import sys

import pynvml

from tandem.demo.lines import say

PERIOD_S = 0.01


def main() -> None:
    """Sample until a line arrives on stdin."""
    pynvml.nvmlInit()
    device = pynvml.nvmlDeviceGetHandleByIndex(0)
    say("up")
    peak_bytes = 0
    while True:
        peak_bytes = max(peak_bytes, int(pynvml.nvmlDeviceGetMemoryInfo(device).used))
        if select.select([sys.stdin], [], [], PERIOD_S)[0]:
            break
    say("result", peak_bytes=peak_bytes)


if __name__ == "__main__":
    main()
