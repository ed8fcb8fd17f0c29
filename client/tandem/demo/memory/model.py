"""A model that fills its share of the device and needs all of it in every iteration."""

from __future__ import annotations

from cuda.bindings import driver

from tandem.demo.gpu import CHUNK_WORDS, WORD_BYTES, Gpu, check
from tandem.demo.memory.settings import SEED
from tandem.demo.words import Input, Total, Words

CHUNK_BYTES = CHUNK_WORDS * WORD_BYTES
UNIT_BYTES = 2 << 20  # granularity of device memory: part of a unit would take a whole one
PARTS = 24  # at most, so that each kernel takes milliseconds


class Model:
    """Parts of equal size, and a ring of kernels over them. Owned by the thread that made it."""

    def __init__(self, gpu: Gpu, share: float) -> None:
        """Allocate the memory.

        Raises:
            DriverError: the device has too little memory left.
        """
        self._gpu = gpu
        self._stream = gpu.stream()
        share_bytes = int(share * check(driver.cuDeviceTotalMem(gpu.device)))
        size_bytes = max(UNIT_BYTES, share_bytes // PARTS // UNIT_BYTES * UNIT_BYTES)
        blocks = size_bytes // CHUNK_BYTES
        # The input and the sums need less than one part.
        self._parts = [Words(gpu, blocks) for _ in range(max(2, share_bytes // size_bytes - 1))]
        self._input = Input(gpu)
        self._total = Total(gpu, blocks)
        self._fill()

    def iterate(self, number: int) -> bool:
        """Run a kernel per part that reads its neighbour; tell whether one part's sum is right."""
        for index, part in enumerate(self._parts):
            part.mix(self._parts[index - 1], 2 * number + 3, self._stream)
        return self._is_right(self._parts[number % len(self._parts)])

    def is_right(self) -> bool:
        """Whether the sums of all parts equal what the CPU computes."""
        return all(self._is_right(part) for part in self._parts)

    def free(self) -> None:
        """Free the large parts."""
        for part in self._parts:
            self._gpu.free(part.address)

    def _fill(self) -> None:
        for number, part in enumerate(self._parts, start=SEED):
            self._input.upload(number, self._stream)
            part.spread(self._input, self._stream)
            self._gpu.synchronize(self._stream)

    def _is_right(self, part: Words) -> bool:
        self._total.start(part, self._stream)
        self._gpu.synchronize(self._stream)
        return self._total.value() == part.expected
