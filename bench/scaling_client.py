"""The trainer of bench/partition_scaling.py: python -m bench.scaling_client IMAGE WORKLOAD...

Runs on the software GPU with the virtual clock. For each line `time` on stdin, it trains every
workload for some iterations and prints a JSON object: how long an iteration of each took, in
nanoseconds. On a line `train`, it trains the first workload until another line arrives.
"""

from __future__ import annotations

import ctypes
import io
import json
import select
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cuda.bindings import driver as cu

import tandem
from bench.curves_client import checked

ITERATIONS, WARM = 8, 3
NON_BLOCKING = 1


class Trainer:
    """A context with the kernels, two streams and an event."""

    def __init__(self, image: bytes) -> None:
        """Set up on device 0."""
        checked(cu.cuInit(0))
        device = checked(cu.cuDeviceGet(0))
        checked(cu.cuCtxSetCurrent(checked(cu.cuDevicePrimaryCtxRetain(device))))
        module = checked(cu.cuModuleLoadData(image))
        self._kernels = {
            name: checked(cu.cuModuleGetFunction(module, name.encode()))
            for name in ("crunch", "smooth")
        }
        self.streams = [checked(cu.cuStreamCreate(NON_BLOCKING)) for _ in range(2)]
        self._joined = checked(cu.cuEventCreate(0))
        self._host = bytearray(8 << 20)
        self._device = checked(cu.cuMemAlloc(len(self._host)))
        self._clock = ctypes.CDLL("libcuda.so.1")
        self._clock.softgpu_now_ns.restype = ctypes.c_uint64

    def launch(self, name: str, blocks: int, threads: int = 256, stream: int = 0) -> None:
        """Launch one kernel."""
        where = self.streams[stream]
        checked(cu.cuLaunchKernel(self._kernels[name], blocks, 1, 1, threads, 1, 1, 0, where, 0, 0))

    def join(self) -> None:
        """Make the first stream wait for what is in the second so far."""
        checked(cu.cuEventRecord(self._joined, self.streams[1]))
        checked(cu.cuStreamWaitEvent(self.streams[0], self._joined, 0))

    def load(self) -> None:
        """Copy a batch to the device."""
        source = (ctypes.c_char * len(self._host)).from_buffer(self._host)
        address = ctypes.addressof(source)
        checked(cu.cuMemcpyHtoDAsync(self._device, address, len(self._host), self.streams[0]))

    def think(self, us: int) -> None:
        """Let the host compute for that long."""
        self._clock.softgpu_wait_until_ns(ctypes.c_uint64(self._clock.softgpu_now_ns() + us * 1000))

    def train(self, iteration: Callable[[Trainer], None]) -> float:
        """Train; return the average nanoseconds per iteration after a few to warm up."""
        begin_ns = 0
        for number in range(WARM + ITERATIONS):
            if number == WARM:
                begin_ns = self._clock.softgpu_now_ns()
            self._step(iteration)
        return float(self._clock.softgpu_now_ns() - begin_ns) / ITERATIONS

    def train_until_told(self, iteration: Callable[[Trainer], None], words: io.FileIO) -> None:
        """Train until a line arrives, without pauses: virtual time would pass and be recorded."""
        while not select.select([words], [], [], 0)[0]:
            self._step(iteration)

    def _step(self, iteration: Callable[[Trainer], None]) -> None:
        iteration(self)
        for stream in self.streams:
            checked(cu.cuStreamSynchronize(stream))
        tandem.step()

    def wait_for_word(self, words: io.FileIO) -> str:
        """Return the next line, letting virtual time pass meanwhile; "" at the end of input."""
        self._clock.softgpu_wait_begin()
        line = words.readline()
        self._clock.softgpu_wait_end()
        return line.decode().strip()


def small_grids(on: Trainer) -> None:
    """Launch kernels that do not fill the GPU."""
    for blocks in (24, 100, 132, 300, 60):
        on.launch("crunch", blocks)


def many_waves(on: Trainer) -> None:
    """Launch kernels that each fill the GPU many times over."""
    for blocks in (4000, 2500, 6001):
        on.launch("crunch", blocks)


def odd_waves(on: Trainer) -> None:
    """Launch kernels whose last wave is far from full; an SM holds two blocks at a time."""
    for blocks in (265, 530, 400, 133):
        on.launch("crunch", blocks, 1024)


def two_streams(on: Trainer) -> None:
    """Launch kernels in two streams, which share the SMs and then join."""
    for blocks in (400, 200, 600):
        on.launch("crunch", blocks, stream=0)
        on.launch("crunch", 500, stream=1)
    on.join()
    on.launch("crunch", 1056)


def bandwidth(on: Trainer) -> None:
    """Launch kernels bound by memory on all SMs, and by computing on few."""
    for _ in range(3):
        on.launch("smooth", 2000)


def mixed(on: Trainer) -> None:
    """Launch a bit of everything, with a copy and computing on the host."""
    on.load()
    on.launch("crunch", 3000)
    on.launch("smooth", 500)
    on.launch("crunch", 90)
    on.think(100)
    on.launch("crunch", 1500, stream=1)
    on.launch("crunch", 200)
    on.join()


WORKLOADS: Mapping[str, Callable[[Trainer], None]] = {
    "small_grids": small_grids,
    "many_waves": many_waves,
    "odd_waves": odd_waves,
    "two_streams": two_streams,
    "bandwidth": bandwidth,
    "mixed": mixed,
}


def main() -> None:
    """Obey each line on stdin."""
    image, *names = sys.argv[1:]
    trainer = Trainer(Path(image).read_bytes())
    words = io.FileIO(0)  # unbuffered: select() would not see lines that were read ahead
    print("ready", flush=True)
    while word := trainer.wait_for_word(words):
        if word == "train":
            trainer.train_until_told(WORKLOADS[names[0]], words)
            continue
        took: dict[str, Any] = {name: trainer.train(WORKLOADS[name]) for name in names}
        print(json.dumps(took), flush=True)


if __name__ == "__main__":
    main()
