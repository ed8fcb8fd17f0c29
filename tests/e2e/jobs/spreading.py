"""Work in streams of a job's own, whose order and place can be seen: what a job under test runs."""

import ctypes

from cuda.bindings import driver as cu
from gpu import ok

NON_BLOCKING, BLOCKING = 1, 0


class Work:
    """Wide kernels, and between them steps of a sum that comes out only in the right order."""

    def __init__(self, gpu, streams=2, flags=NON_BLOCKING):
        self.gpu = gpu
        self.streams = [ok(cu.cuStreamCreate(flags)) for _ in range(streams)]
        self.words = [gpu.word(1) for _ in self.streams]
        self.expected = [1] * streams
        self.numbers = ok(cu.cuMemAlloc(4))

    def submit(self, times=1):
        """Does not wait."""
        pointers, types = (self.numbers,) * 3, (None, None, None, ctypes.c_int)
        for step in range(times):
            for nth, stream in enumerate(self.streams):
                wide = self.gpu.launch(
                    "vadd", (*pointers, 0), types, stream=stream, grid=1320, block=256
                )
                ok(wide)
                factor, addend = 3 + nth, step + 1
                self.gpu.affine(self.words[nth], factor, addend, stream=stream)
                self.expected[nth] = (self.expected[nth] * factor + addend) % 2**32

    def result(self):
        """What the words are, and should be."""
        for stream in self.streams:
            ok(cu.cuStreamSynchronize(stream))
        return [self.gpu.read(word)[0] for word in self.words], self.expected

    def is_right(self):
        found, expected = self.result()
        return found == expected


works = {}


def begin(gpu, **how):
    works["work"] = Work(gpu, **how)


def submit(times=1):
    works["work"].submit(times)


def run(times=1):
    """To the end; whether it came out right."""
    works["work"].submit(times)
    return works["work"].is_right()
