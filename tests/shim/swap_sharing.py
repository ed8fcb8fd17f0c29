"""What one process whose memory is moved gives to others, as a model: who has what of it open.

An allocation of its own stays with whoever has it open when it is freed. A part of a slab does not:
other things come to its place, so whoever has it open lets go of it before.
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
    """So many bytes, none of whose neighbourhoods is like another's."""
    at = rng.randrange(len(SOURCE) - size + 1)
    return SOURCE[at : at + size]


def random_part(rng: random.Random, size: int) -> tuple[int, int]:
    """Begin and size, at least 1, of a part of so many bytes."""
    begin = rng.randrange(size)
    return begin, rng.randint(1, size - begin)


class Sharing:
    """By its owner, with others of whom one after the other takes part."""

    def __init__(self, openers: list[Opener], rng: random.Random, seen: Counter[str]) -> None:
        self.handles: dict[int, bytes] = {}  # of what was ever shared and is held
        self._openers = openers
        self._rng = rng
        self._seen = seen

    def step(self, address: int, model: bytearray | None) -> None:
        """One of them opens that, uses what it has open, lets go of it, or ends."""
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
        """One of them opens it, and finds in it what the model says."""
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
        """It reads or writes, whether the rest of the owner's memory is away or not."""
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
        """It lets go of something."""
        if (its_own := self._any_opened()) is not None:
            self._openers[0].close(its_own)

    def let_go_of(self, address: int) -> None:
        """Before it is freed."""
        for opener in self._openers:
            if (its_own := opener.of.get(address)) is None:
                continue
            if len(opener.opened[its_own]) < SMALLEST_ALONE:
                opener.close(its_own)
            opener.forget(its_own)

    def forget(self, address: int) -> None:
        """It is freed: its handle opens nothing, but for who has its slab open and knows it."""
        handle = self.handles.pop(address, None)
        if handle and self._openers and not self._openers[0].opened:
            answer = self._openers[0].open(handle, address, bytearray())
            assert answer == "CUDA_ERROR_INVALID_HANDLE", answer
            self._seen["gone"] += 1

    def end(self) -> None:
        """The owner ends soon: nothing that is open goes with it."""
        for opener in self._openers:
            self._seen["outlived"] += opener.expect()

    def _any_opened(self) -> int | None:
        opened = list(self._openers[0].opened) if self._openers else ()
        return self._rng.choice(opened) if opened else None
