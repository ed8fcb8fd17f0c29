"""In a job on the software GPU: iterations of two kernels in two streams that share a buffer."""

from pathlib import Path

from cuda.bindings import driver as cu
from gpu import ok

import tandem

THREADS = 32


class Sharing:
    """Launches `kernel(from, to)` twice in each iteration, each time from one buffer to another."""

    def __init__(self, gpu, image, kernel):
        self.gpu, self.kernel = gpu, kernel
        gpu.module = ok(cu.cuModuleLoadData(Path(image).read_bytes()))
        self.streams = [ok(cu.cuStreamCreate(1)) for _ in range(2)]
        self.shared, *self.own = (ok(cu.cuMemAlloc(4 * THREADS)) for _ in range(3))

    def read(self):
        """Run an iteration in which both kernels read the shared buffer."""
        self._iterate((self.shared, self.own[0]), (self.shared, self.own[1]))

    def write(self):
        """Run an iteration in which one kernel reads what the other writes."""
        self._iterate((self.shared, self.own[0]), (self.own[1], self.shared))

    def _iterate(self, *pointers):
        for stream, pair in zip(self.streams, pointers, strict=True):
            launch = self.gpu.launch
            ok(launch(self.kernel, pair, (None, None), stream=stream, block=THREADS))
        ok(cu.cuCtxSynchronize())
        tandem.step()
