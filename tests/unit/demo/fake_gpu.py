"""A device for the demo's buffers, which runs kernels in Python, word by word."""

import ctypes

from tandem.demo.gpu import CHUNK_WORDS, THREADS, PinnedWords

MASK = 0xFFFFFFFF


class FakeGpu:
    """Has the methods of tandem.demo.gpu.Gpu that buffers use; remembers what was launched."""

    def __init__(self):
        self.memory = {}
        self.launched = []
        self._keep = []

    def pinned(self, words):
        self._keep.append((ctypes.c_uint32 * words)())
        return PinnedWords(words, ctypes.addressof(self._keep[-1]))

    def allocate(self, words):
        address = 0x1000 * (len(self.memory) + 1)
        self.memory[address] = [0] * words
        return address

    def copy_in(self, address, source, stream):
        view = (ctypes.c_uint32 * (source.bytes // 4)).from_address(source.address)
        self.memory[address][:] = list(view)

    def copy_out(self, target, address, stream):
        view = (ctypes.c_uint32 * (target.bytes // 4)).from_address(target.address)
        view[:] = self.memory[address]

    def launch(self, name, blocks, stream, arguments):
        values, types = arguments
        assert len(values) == len(types)
        self.launched.append(name)
        getattr(self, "_" + name)(blocks * CHUNK_WORDS, *values)

    def _affine(self, words, x, a, c):
        buffer = self.memory[x]
        buffer[:words] = [(a * v + c) & MASK for v in buffer[:words]]

    def _mix(self, words, x, y, a):
        pairs = zip(self.memory[x][:words], self.memory[y][:words], strict=True)
        self.memory[x][:words] = [(a * v + w) & MASK for v, w in pairs]

    def _spread(self, words, x, source):
        self.memory[x][:words] = self.memory[source] * (words // CHUNK_WORDS)

    def _fold(self, words, x, partial):
        for block in range(words // CHUNK_WORDS):
            chunk = self.memory[x][block * CHUNK_WORDS : (block + 1) * CHUNK_WORDS]
            for thread in range(THREADS):
                self.memory[partial][block * THREADS + thread] = sum(chunk[thread::THREADS]) & MASK
