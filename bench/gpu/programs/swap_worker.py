"""Holds memory for the part `swap`, or measures pinned copies.

`python -m bench.gpu.programs.swap_worker ORDER` speaks the JSON lines of tandem.demo.worker: it
sends `up`, waits for a line, sends `ready`, waits for a line, and then sends either the rates of
pinned copies or, after another line, whether every byte it held is right.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tandem.demo.gpu import WORD_BYTES, Gpu
from tandem.demo.lines import say
from tandem.demo.memory.model import Model

COPY_WORDS = 64 << 20 >> 2  # 64 MiB; the shim moves 32 MiB at once
ROUNDS = 8
ITERATIONS = 3  # before and after holding, so that the bytes are computed, not merely set


def main() -> None:
    """Execute the order on the command line: an image, and the share of the device to hold."""
    order = json.loads(sys.argv[1])
    say("up")
    sys.stdin.readline()
    gpu = Gpu(Path(order["image"]).read_bytes())
    if not order["share"]:
        say("ready")
        sys.stdin.readline()
        say("result", **pinned_bytes_s(gpu))
        return
    model = Model(gpu, order["share"])
    correct = all(model.iterate(number) for number in range(ITERATIONS))
    say("ready")
    for _ in ("begin", "check"):
        sys.stdin.readline()
    correct &= all(model.iterate(ITERATIONS + number) for number in range(ITERATIONS))
    say("result", correct=correct and model.is_right())
    sys.stdin.readline()


def pinned_bytes_s(gpu: Gpu) -> dict[str, float]:
    """Bytes per second between pinned memory and the device: each way alone, and both at once."""
    lanes = {way: _Lane(gpu, way) for way in ("out", "in")}
    found: dict[str, float] = {}
    for names in (("out",), ("in",), ("out", "in")):
        for _ in range(2):  # only the second counts: the first may touch pages for the first time
            for name in names:
                lanes[name].start()
            rates = {name: lanes[name].bytes_s() for name in names}
        found |= {name if len(names) == 1 else f"{name}_both": rates[name] for name in names}
    return found


class _Lane:
    """Copies in one direction, in a stream of their own."""

    def __init__(self, gpu: Gpu, way: str) -> None:
        self._gpu, self._way = gpu, way
        self._host, self._device = gpu.pinned(COPY_WORDS), gpu.allocate(COPY_WORDS)
        self._stream = gpu.stream()
        self._begin, self._end = gpu.event(timing=True), gpu.event(timing=True)

    def start(self) -> None:
        self._gpu.record(self._begin, self._stream)
        for _ in range(ROUNDS):
            if self._way == "in":
                self._gpu.copy_in(self._device, self._host, self._stream)
            else:
                self._gpu.copy_out(self._host, self._device, self._stream)
        self._gpu.record(self._end, self._stream)

    def bytes_s(self) -> float:
        self._gpu.synchronize(self._stream)
        took_ms = self._gpu.elapsed_ms(self._begin, self._end)
        return ROUNDS * COPY_WORDS * WORD_BYTES * 1e3 / took_ms


if __name__ == "__main__":
    main()
