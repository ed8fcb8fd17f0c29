"""A job that trains on the software GPU: its persistent memory, and what an iteration takes."""

import json
import os
from pathlib import Path

from cuda.bindings import driver as cu
from gpu import ok, outside

import tandem
from tandem.softgpu._query import device_status

MASK = 2**32 - 1


def refusal(call):
    """Make the call; return the driver's error if it refuses something in it, else None."""
    try:
        call()
    except AssertionError as error:
        return str(error)


class Training:
    """Keeps some memory for good; each iteration takes more, computes with both, and frees that."""

    def __init__(self, gpu, persistent, ephemeral):
        self.gpu, self.persistent, self.ephemeral = gpu, persistent, ephemeral
        self.ledger = []  # after each allocation, what the device has given to all jobs
        self.word, self.value = gpu.word(1), 1
        self.weights = self._take(persistent)
        ok(cu.cuMemsetD32(self.weights, 7, persistent // 4))

    def begin(self):
        """Run an iteration up to the point where it holds the most memory."""
        self.scratch = self._take(self.ephemeral)
        ok(cu.cuMemcpyDtoD(self.scratch, self.weights, min(self.persistent, self.ephemeral)))
        self.gpu.affine(self.word, 3, 1, slow=True)
        self.value = (3 * self.value + 1) & MASK

    def end(self):
        """Finish the iteration; tell whether all bytes that were checked are right."""
        found = [self.gpu.read(self.word)[0], self.gpu.read(self.scratch)[0]]
        ok(cu.cuMemFree(self.scratch))
        tandem.step()
        return found == [self.value, 7]

    def run(self, count):
        """Run `count` iterations; tell whether all were right."""
        right = [self._iterate() for _ in range(count)]
        return all(right)

    def run_until(self, path):
        """Run iterations, at least one, until the file exists; tell whether all were right."""
        right = [self._iterate()]
        while not os.path.exists(path):
            right.append(self._iterate())
        return all(right)

    def _iterate(self):
        self.begin()
        return self.end()

    def _take(self, size):
        address = ok(cu.cuMemAlloc(size))
        with outside():
            status = json.loads(device_status(Path(os.environ["TANDEM_SOFTGPU_DIR"])))
        self.ledger.append(status["devices"][0]["used_bytes"])
        return address
