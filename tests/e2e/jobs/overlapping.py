"""In a job on the software GPU: iterations of kernels side by side and one after the other."""

from pathlib import Path

from cuda.bindings import driver as cu
from gpu import ok

import tandem

BLOCKS = {"long": 4, "short": 1, "last": 2}  # in the first stream, in the other, and after both
KERNEL = "_Z7doubledPKfPf"
WARM_UP = 20  # iterations until the length of every kernel is known


class Overlap:
    """Every iteration does the same work, for some milliseconds."""

    def __init__(self, gpu, image):
        self.gpu = gpu
        gpu.module = ok(cu.cuModuleLoadData(Path(image).read_bytes()))
        self.one, self.other = (ok(cu.cuStreamCreate(1)) for _ in range(2))
        self.buffers = [ok(cu.cuMemAlloc(4)) for _ in range(3)]
        self.joined = ok(cu.cuEventCreate(2))
        for _ in range(WARM_UP):
            self.iterate()

    def iterate(self):
        read, first, second = self.buffers
        self._launch("long", self.one, read, first)
        self._launch("short", self.other, read, second)
        ok(cu.cuEventRecord(self.joined, self.other))
        ok(cu.cuStreamWaitEvent(self.one, self.joined, 0))
        self._launch("last", self.one, second, first)
        ok(cu.cuCtxSynchronize())
        tandem.step()

    def _launch(self, which, stream, *pointers):
        grid = BLOCKS[which]
        ok(self.gpu.launch(KERNEL, pointers, (None, None), stream=stream, grid=grid))
