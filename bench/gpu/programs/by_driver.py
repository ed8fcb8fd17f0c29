"""A trainer of the demo on cuda.bindings; also runs on the software GPU, where frameworks do not.

`TANDEM_BENCH_IMAGE` names the file with its kernels.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

from bench.gpu.programs import Made
from tandem.demo.gpu import Gpu
from tandem.demo.trainer import Vision
from tandem.demo.words import Total

IMAGE = "TANDEM_BENCH_IMAGE"
BLOCKS = {"cuda": 64, "cpu": 1}


def train(device: str) -> Made:
    """Two streams, events, copies of pinned memory, and a few hundred launches per iteration."""
    gpu = Gpu(Path(os.environ[IMAGE]).read_bytes())
    blocks = BLOCKS[device]
    model, total = Vision(gpu, blocks), Total(gpu, blocks)
    totals: list[int] = []

    def step() -> None:
        model.enqueue(len(totals))
        total.start(model.weights, model.stream)
        gpu.synchronize(model.stream)
        totals.append(total.value())

    return Made(step=step, state=lambda: [struct.pack(f"<{len(totals)}Q", *totals)])
