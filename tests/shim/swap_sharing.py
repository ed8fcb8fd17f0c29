"""A model of what a process whose memory is moved shares with others: which process has what open.

If an allocation of its own is freed, it lives on in the processes that have it open. A part of a
slab does not, because something else takes its place, so openers close it first.
"""

from __future__ import annotations

import ctypes
import random
from collections import Counter

from cuda.bindings import driver as cu
from memory_limits import ok
from swap_moves import MIB
from swap_openers import Opener

SMALLEST_ALONE = MIB  # smaller ones share a slab
MOST_OPENED = 6
HANDLE_BYTES = 64
SOURCE = random.Random(0).randbytes(8 * MIB)


def random_content(rng: random.Random, size: int) -> bytes:
    """Return random bytes, so that every neighbourhood is different from all others."""
    at = rng.randrange(len(SOURCE) - size + 1)
    return SOURCE[at : at + size]


def random_part(rng: random.Random, size: int) -> tuple[int, int]:
    """Return begin and size, at least 1, of a part of `size` bytes."""
    begin = rng.randrange(size)
    return begin, rng.randint(1, size - begin)


class Sharing:
    """The owner's view; the openers take part one after the other."""

    def __init__(self, openers: list[Opener], rng: random.Random, seen: Counter[str]) -> None:
        self.handles: dict[int, bytes] = {}  # of all allocations ever shared and still held
        self._openers = openers
        self._rng = rng
        self._seen = seen

    def step(self, address: int, model: bytearray | None) -> None:
        """Let an opener open the allocation, use what it has open, close something, or end."""
        if not self._openers:
            return
        if model is None or len(self._openers[0].opened) == MOST_OPENED:
            self.close()
        elif self._rng.random() < 0.4:
            self.open(address, model)
        else:
            self._rng.choice((self.use, self.use, self.close))()
        if self._rng.random() < 0.02:
            self._openers.pop(0).kill()
            self._seen["openers killed"] += 1

    def open(self, address: int, model: bytearray) -> None:
        """Let an opener open the allocation and find in it what the model says."""
        opener = self._openers[0]
        if address in opener.of:
            return
        handle = ctypes.string_at(ok(cu.cuIpcGetMemHandle(address)).getPtr(), HANDLE_BYTES)
        assert self.handles.setdefault(address, handle) == handle
        answer = opener.open(handle, address, model)
        assert answer == "CUDA_SUCCESS", answer
        opener.compare(opener.of[address])
        self._seen["opened"] += 1

    def use(self) -> None:
        """Let it read or write, whether the rest of the owner's memory is away or not."""
        if (its_own := self._any_opened()) is None:
            return
        opener = self._openers[0]
        if self._rng.random() < 0.5:
            opener.compare(its_own)
        else:
            begin, size = random_part(self._rng, len(opener.opened[its_own]))
            opener.write(its_own, begin, random_content(self._rng, size))
        self._seen["used by another"] += 1

    def close(self) -> None:
        """Let it close something."""
        if (its_own := self._any_opened()) is not None:
            self._openers[0].close(its_own)

    def let_go_of(self, address: int) -> None:
        """Let openers close what must be closed before the allocation is freed."""
        for opener in self._openers:
            if (its_own := opener.of.get(address)) is None:
                continue
            if len(opener.opened[its_own]) < SMALLEST_ALONE:
                opener.close(its_own)
            opener.forget(its_own)

    def forget(self, address: int) -> None:
        """Check that a freed handle opens nothing, except if the opener may have its slab open."""
        handle = self.handles.pop(address, None)
        if handle and self._openers and not self._openers[0].opened:
            answer = self._openers[0].open(handle, address, bytearray())
            assert answer == "CUDA_ERROR_INVALID_HANDLE", answer
            self._seen["gone"] += 1

    def end(self) -> None:
        """Prepare the owner's end: what is open must not go with it."""
        for opener in self._openers:
            self._seen["outlived"] += opener.expect()

    def _any_opened(self) -> int | None:
        opened = list(self._openers[0].opened) if self._openers else ()
        return self._rng.choice(opened) if opened else None
