"""Holds memory for the part `swap`, or measures pinned copies.

Run as `python -m bench.gpu.programs.swap_worker ORDER` it speaks the JSON lines of
tandem.demo.worker: `up`, a line, `ready`, a line, and then either what pinned copies do, or, after
one line more, whether every byte it held is right.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tandem.demo.gpu import WORD_BYTES, Gpu
from tandem.demo.lines import say
from tandem.demo.memory.model import Model

COPY_WORDS = 64 << 20 >> 2  # what the shim moves at once is 32 MiB
ROUNDS = 8
ITERATIONS = 3  # before and after: the bytes it holds are computed, not only set


def main() -> None:
    """Do what the order on the command line says: image, and the share of the device to hold."""
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
    """Bytes a second between pinned memory and the device: each way alone, and both at once."""
    lanes = {way: _Lane(gpu, way) for way in ("out", "in")}
    found: dict[str, float] = {}
    for names in (("out",), ("in",), ("out", "in")):
        for _ in range(2):  # the first time pages may be touched for the first time
            for name in names:
                lanes[name].start()
            rates = {name: lanes[name].bytes_s() for name in names}
        found |= {name if len(names) == 1 else f"{name}_both": rates[name] for name in names}
    return found


class _Lane:
    """Copies of one direction, in a stream of its own."""

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
