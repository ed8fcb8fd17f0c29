"""Device buffers with the sum of their words tracked on the CPU.

Every operation launches one kernel, and applies the closed form of its effect to the sum, modulo
2^32. The forms do not commute, so a lost, doubled or reordered launch shows.
"""

from __future__ import annotations

from ctypes import c_uint32, c_void_p
from typing import Any

from tandem.demo.gpu import CHUNK_WORDS, THREADS, Gpu, Handle

MASK = 0xFFFFFFFF


class Input:
    """One chunk of words on the host and on the device: a request's or a batch's data."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._host = gpu.pinned(CHUNK_WORDS)
        for index in range(CHUNK_WORDS):
            self._host.store(index, index * 2654435761)
        self._host.store(0, 0)
        self._rest = self._host.total()
        self.address = gpu.allocate(CHUNK_WORDS)
        self.expected = 0

    def upload(self, number: int, stream: Handle) -> None:
        """Copy in the data of request or batch `number`; the previous one must have completed."""
        self._host.store(0, number)
        self.expected = (self._rest + number) & MASK
        self._gpu.copy_in(self.address, self._host, stream)


class Words:
    """A device buffer of `blocks` chunks, and its expected sum."""

    def __init__(self, gpu: Gpu, blocks: int) -> None:
        self._gpu = gpu
        self.blocks = blocks
        self.address = gpu.allocate(blocks * CHUNK_WORDS)
        self.expected = 0

    def spread(self, source: Input, stream: Handle) -> None:
        """Fill the buffer with copies of the input."""
        self._launch("spread", stream, (self.address, source.address), (c_void_p, c_void_p))
        self.expected = self.blocks * source.expected & MASK

    def affine(self, factor: int, addend: int, stream: Handle) -> None:
        """Multiply every word by `factor` and add `addend`."""
        self._launch(
            "affine", stream, (self.address, factor, addend), (c_void_p, c_uint32, c_uint32)
        )
        count = self.blocks * CHUNK_WORDS
        self.expected = (factor * self.expected + count * addend) & MASK

    def mix(self, other: Words, factor: int, stream: Handle) -> None:
        """Multiply every word by `factor` and add the other buffer's word."""
        values = (self.address, other.address, factor)
        self._launch("mix", stream, values, (c_void_p, c_void_p, c_uint32))
        self.expected = (factor * self.expected + other.expected) & MASK

    def _launch(
        self,
        name: str,
        stream: Handle,
        values: tuple[int, ...],
        types: tuple[Any, ...],
    ) -> None:
        self._gpu.launch(name, self.blocks, stream, (values, types))


class Total:
    """Sums a buffer on the device: `start` enqueues, `value` reads after a synchronisation."""

    def __init__(self, gpu: Gpu, blocks: int) -> None:
        self._gpu = gpu
        self._levels: list[tuple[int, int]] = []  # blocks to launch, address of the result
        while True:
            words = blocks * THREADS
            next_blocks = -(-words // CHUNK_WORDS)
            # Whole zeroed chunks: past `words` nothing is written, so the next level may read them
            # all.
            self._levels.append((blocks, gpu.allocate(next_blocks * CHUNK_WORDS)))
            if next_blocks == 1:
                break
            blocks = next_blocks
        self._host = gpu.pinned(CHUNK_WORDS)

    def start(self, source: Words, stream: Handle) -> None:
        """Enqueue the sum and its copy to the host."""
        address = source.address
        for blocks, target in self._levels:
            self._gpu.launch("fold", blocks, stream, ((address, target), (c_void_p, c_void_p)))
            address = target
        self._gpu.copy_out(self._host, address, stream)

    def value(self) -> int:
        """The sum modulo 2^32; only valid after the stream was synchronised."""
        return self._host.total()
