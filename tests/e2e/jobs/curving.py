"""Training that holds memory for every layer from its forward to its backward pass.

It runs on the virtual clock. Every layer's memory is written forward and read backward, so a wrong
order, or another job's memory, gives a wrong sum.
"""

import sys

from cuda.bindings import driver as cu
from gpu import ok, outside
from waiting import CLOCK, NON_BLOCKING

import tandem

MIB = 1 << 20
LAYERS, KERNELS = 8, 4  # of 100 us each, on half of the SMs
BLOCKS, THREADS = 32, 256
WEIGHTS_BYTES, LAYER_BYTES = 48 * MIB, 80 * MIB
BATCH_BYTES = 4096
PEAK_BYTES = WEIGHTS_BYTES + LAYERS * LAYER_BYTES
SUM = LAYERS * 2 * KERNELS  # what an iteration's kernels add, layer by layer


class Trainer:
    """One model, and what it has seen of the device's memory."""

    def __init__(self, gpu) -> None:
        self.gpu = gpu
        self.stream = ok(cu.cuStreamCreate(NON_BLOCKING))
        self.weights = ok(cu.cuMemAlloc(WEIGHTS_BYTES))
        self.sum = gpu.word(0)
        self.batch = ok(cu.cuMemAlloc(BATCH_BYTES))
        self.most_used_bytes = 0

    def run(self, iterations: int, *, marks: bool) -> tuple[int, int, int, int]:
        """Return begin and end by the device's clock, the sum, and the device's highest usage."""
        begin_ns = CLOCK.softgpu_now_ns()
        for _ in range(iterations):
            self.iterate()
            if marks:
                tandem.step()
        end_ns = CLOCK.softgpu_now_ns()
        return begin_ns, end_ns, self.gpu.read(self.sum)[0], self.most_used_bytes

    def iterate(self, at_peak=lambda: None) -> None:
        """Run one iteration, from the batch to the loss, which the host waits for."""
        ok(cu.cuMemcpyHtoDAsync(self.batch, bytes(BATCH_BYTES), BATCH_BYTES, self.stream))
        with tandem.phase("forward"):
            layers = [self.forward() for _ in range(LAYERS)]
            at_peak()
        with tandem.phase("backward"):
            while layers:
                self.backward(layers.pop())
        ok(cu.cuStreamSynchronize(self.stream))

    def forward(self):
        layer = ok(cu.cuMemAlloc(LAYER_BYTES))
        free_bytes, total_bytes = ok(cu.cuMemGetInfo())
        self.most_used_bytes = max(self.most_used_bytes, total_bytes - free_bytes)
        ok(cu.cuMemsetD32Async(layer, 0, THREADS, self.stream))
        self.compute(layer, "layer")
        return layer

    def backward(self, layer) -> None:
        self.compute(layer, "layer_back")
        types = (None, None)
        ok(self.gpu.launch("gather", (self.sum, layer), types, stream=self.stream))
        ok(cu.cuMemFree(layer))  # waits for the kernels that read it

    def compute(self, layer, kernel) -> None:
        how = {"grid": BLOCKS, "block": THREADS, "stream": self.stream}
        for _ in range(KERNELS):
            ok(self.gpu.launch(kernel, (layer,), (None,), **how))


def train(gpu, iterations: int, *, marks: bool = True):
    if not hasattr(gpu, "trainer"):
        gpu.trainer = Trainer(gpu)
    return gpu.trainer.run(iterations, marks=marks)


def stand(gpu) -> None:
    """Begin another iteration and stop where it holds the most memory, until a line arrives."""

    def at_peak() -> None:
        ok(cu.cuStreamSynchronize(gpu.trainer.stream))
        print(repr("at its peak"), flush=True)
        with outside():
            sys.stdin.readline()

    gpu.trainer.iterate(at_peak)
    tandem.step()


def refused(gpu, iterations: int) -> str | None:
    """Train; return the error that ended the training early, or None."""
    try:
        train(gpu, iterations)
    except AssertionError as error:
        return str(error)
    return None
