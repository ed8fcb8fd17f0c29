"""Finds the amount of work for a kernel of the wanted duration, measured with events."""

from __future__ import annotations

import statistics

from tandem.demo.gpu import Gpu
from tandem.demo.server import Server
from tandem.demo.settings import KERNEL_NS
from tandem.demo.words import Words

FIRST_BLOCKS = 32
ROUNDS = 5


def layer_blocks(gpu: Gpu) -> int:
    """The smallest number of blocks found with which a layer's kernel lasts at least KERNEL_NS."""
    blocks = FIRST_BLOCKS
    while (measured_ns := _layer_ns(gpu, blocks)) < KERNEL_NS:
        growth = 1.05 * KERNEL_NS / max(measured_ns, 1)
        blocks = max(blocks + 1, int(blocks * min(growth, 8.0)))
    return blocks


def request_ns(gpu: Gpu, blocks: int) -> int:
    """The GPU time of one request to the server when nothing else runs."""
    server = Server(gpu, blocks)
    times = []
    for number in range(1, ROUNDS + 1):
        server.infer(number)
        times.append(server.gpu_ms())
    return int(statistics.median(times) * 1e6)


def _layer_ns(gpu: Gpu, blocks: int) -> int:
    stream = gpu.stream()
    words = Words(gpu, blocks)
    start, end = gpu.event(timing=True), gpu.event(timing=True)
    words.affine(1, 1, stream)  # a function's first launch may load it
    times = []
    for _ in range(ROUNDS):
        gpu.record(start, stream)
        words.affine(3, 1, stream)
        gpu.record(end, stream)
        gpu.synchronize(stream)
        times.append(gpu.elapsed_ms(start, end))
    gpu.free(words.address)
    return int(statistics.median(times) * 1e6)
