"""One process whose memory is moved, and a model of every byte of it.

A random number generator chooses each step and its arguments: the same seed gives the same life.
"""

from __future__ import annotations

import ctypes
import os
import random
import threading
from collections import Counter
from pathlib import Path

from cuda.bindings import driver as cu
from memory_limits import ok
from swap_captures import Captures
from swap_homes import Homes
from swap_moves import BUMP, EVERYTHING, MIB, Daemon, here
from swap_openers import Opener
from swap_sharing import SMALLEST_ALONE, Sharing, random_content, random_part

STEPS = 12
MOST_HELD = 6
UNIT = 2 * MIB  # pieces and slabs are multiples of it
WORD = 4


class Life:
    """A process under its daemon, with a model of its memory."""

    def __init__(self, folder: Path, rng: random.Random, openers: list[Opener]) -> None:
        self.rng = rng
        self.seen: Counter[str] = Counter()
        self.held: dict[int, bytearray] = {}
        self.lost: list[int] = []  # addresses still held, whose content is lost
        self.fixed: set[int] = set()  # addresses held from the driver's own allocator
        self.sharing = Sharing(openers, rng, self.seen)
        self.daemon = Daemon(folder)
        self.homes = Homes(self.daemon, folder, rng)
        module = ok(cu.cuModuleLoadData(BUMP))
        self.kernel = ok(cu.cuModuleGetFunction(module, b"bump"))
        self.captures = Captures(rng, self.seen)

    def sequence(self) -> None:
        """Make some steps, then compare with the model."""
        steps = (self.take, self.take, self.free, self.write, self.launch, self.move, self.share)
        for _ in range(STEPS):
            self.rng.choice((*steps, self.capture))()
        self.compare()
        self.check_size()
        self.seen["sequences"] += 1

    def take(self) -> None:
        size = self.rng.choice((1, 300, 70_000, MIB - 1, MIB + 5, 3 * MIB))
        if len(self.held) + len(self.lost) == MOST_HELD:
            return
        result, address = cu.cuMemAlloc(size)
        if result != cu.CUresult.CUDA_SUCCESS:
            assert result == cu.CUresult.CUDA_ERROR_OUT_OF_MEMORY, result
            self.seen["refused"] += 1
            return
        address = int(address)
        if not is_mapped(address):
            self.fixed.add(address)
        self.held[address] = bytearray(size)
        self.fill(address, 0, size)

    def fill(self, address: int, begin: int, size: int) -> None:
        content = random_content(self.rng, size)
        ok(cu.cuMemcpyHtoD(address + begin, content, size))
        self.held[address][begin : begin + size] = content

    def any(self) -> int | None:
        return self.rng.choice(list(self.held)) if self.held else None

    def free(self) -> None:
        if self.lost:
            address = self.lost.pop()
            ok(cu.cuMemFree(address))
            self.captures.note_free(address)
        elif (address := self.any()) is not None:
            self.sharing.let_go_of(address)
            ok(cu.cuMemFree(address))
            self.captures.note_free(address)
            del self.held[address]
            self.fixed.discard(address)
            self.sharing.forget(address)

    def write(self) -> None:
        if (address := self.any()) is not None:
            self.fill(address, *random_part(self.rng, len(self.held[address])))

    def launch(self) -> None:
        address = self.any()
        count = 0 if address is None else min(len(self.held[address]) // WORD, 2048)
        if not count:
            return
        is_captured = self.captures.is_open and self.rng.random() < 0.5
        stream = self.captures.stream if is_captured else 0
        arguments = ((address, count), (ctypes.c_void_p, ctypes.c_uint32))
        ok(
            cu.cuLaunchKernel(
                self.kernel, (count + 127) // 128, 1, 1, 128, 1, 1, 0, stream, arguments, 0
            )
        )
        self.seen["launches"] += 1
        if is_captured:
            self.captures.note_launch(address, lambda: self.count_up(address, count))
        else:
            self.count_up(address, count)

    def count_up(self, address: int, count: int) -> None:
        """Apply the kernel to the model."""
        words = memoryview(self.held[address])[: count * WORD].cast("I")
        for i in range(count):
            words[i] = (words[i] + 1) & 0xFFFFFFFF
        words.release()

    def capture(self) -> None:
        """End the open capture, or now and then begin one."""
        if self.captures.is_open:
            self.captures.end()
        elif self.rng.random() < 0.3:
            self.captures.begin()

    def move(self) -> None:
        """Move memory out, wholly or in part, and back; a thread may need it meanwhile."""
        if self.captures.is_open:
            self.stay()
            return
        if self.rng.random() < 0.7:
            self.homes.give_missing()
        target = self.rng.choice((0, 0, 2 * MIB, 5 * MIB))
        outcome, away = self.daemon.move(target)
        self.seen[outcome] += 1
        if away:
            self.while_away(everything=outcome == "reached" and target == 0)
        if self.rng.random() < 0.2:
            self.captures.begin()
            self.seen["captured on the way back"] += bool(away)
        self.bring_back()
        if not self.captures.is_open and self.rng.random() < 0.2 and self.homes.has_pools():
            self.give_pool_back()

    def stay(self) -> None:
        """Check that nothing moves before the capture is over."""
        number = self.daemon.job.order(0)
        for _ in range(self.rng.randint(0, 5)):  # virtual milliseconds
            self.daemon.pass_a_millisecond()
        assert not self.daemon.job.snapshot().swapped_bytes, "it went while a graph is captured"
        if self.rng.random() < 0.5:
            self.captures.end()
            self.daemon.until("swap_done", number)
            self.seen["went after a capture"] += bool(self.daemon.job.snapshot().swapped_bytes)
        self.bring_back()

    def while_away(self, *, everything: bool) -> None:
        self.check_places(everything=everything)
        waiting = None
        own = next((each for each in self.held if each not in self.sharing.handles), None)
        if own and self.rng.random() < 0.3:
            waiting = threading.Thread(target=self.touch, args=(own, self.held[own][:1]))
            waiting.start()
            self.daemon.until("waiting_threads", 1)
            self.seen["waited"] += 1
        if self.rng.random() < 0.3 and self.homes.has_pools():
            self.to_file()
        if self.rng.random() < 0.3:
            self.sharing.use()
        if self.daemon.job.snapshot().swapped_bytes and self.homes.has_pools():
            assert self.homes.ask_back() == "not drained", "what is away has lost its place"
        if self.rng.random() < 0.2:  # the daemon changes its mind on the way
            self.daemon.job.order(EVERYTHING)
            self.daemon.move(0)
        if not waiting and not self.captures.holds_back and self.rng.random() < 0.5:
            self.close_files()
        if waiting:
            self.bring_back()
            self.daemon.outlive(waiting)

    def bring_back(self) -> None:
        back = self.daemon.move(EVERYTHING)
        assert back == ("reached", 0), back
        self.homes.forget_files()

    def check_places(self, *, everything: bool) -> None:
        """Check that shared memory is on the device and, of the rest, no more than allowed."""
        for address, model in self.held.items():
            if address in self.sharing.handles:
                assert is_mapped(address), "what others have open has gone"
            elif everything and len(model) >= SMALLEST_ALONE and address not in self.fixed:
                assert not is_mapped(address), "it is still there"

    def to_file(self) -> None:
        """Offer a file for one of the pools, or offer it too late."""
        if self.rng.random() < 0.3:
            since = self.daemon.job.newest_order
            self.daemon.move(self.rng.choice((0, 2 * MIB, EVERYTHING)))
            outcome, wanted = self.homes.offer(since=since), "not drained"
        else:
            outcome, wanted = self.homes.offer(), "reached"
        assert outcome == wanted, outcome
        self.seen["filed" if wanted == "reached" else "too late for a file"] += 1

    def give_pool_back(self) -> None:
        """Ask for an empty pool of host memory back."""
        if self.rng.random() < 0.3:
            since = self.daemon.job.newest_order
            self.daemon.move(self.rng.choice((0, EVERYTHING)))
            outcome, wanted = self.homes.ask_back(since=since), {"not drained"}
            self.bring_back()
        else:
            outcome, wanted = self.homes.ask_back(), {"reached"}
            if not set(self.held) - self.fixed:  # maybe no context, or no move yet
                wanted |= {"failed", "not drained"}
        assert outcome in wanted, outcome
        self.seen["given back" if outcome == "reached" else "not given back"] += 1

    def close_files(self) -> None:
        """Close descriptors that the program did not open, and reuse the numbers for its files."""
        before = self.daemon.job.snapshot()
        closed = self.homes.held_files()
        with open(os.devnull, "rb") as own:
            for number in closed:
                os.dup2(own.fileno(), number)
            self.bring_back()
            for number in closed:
                assert os.path.sameopenfile(number, own.fileno()), "it was not ours to close"
                os.close(number)
        gone = before.swappable_bytes - self.daemon.job.snapshot().swappable_bytes
        assert gone >= before.filed_bytes
        self.find_lost(gone)

    def find_lost(self, gone: int) -> None:
        """Find the allocations whose content, `gone` bytes in all, is lost."""
        pieces = {}
        for address in [each for each in self.held if each not in self.fixed]:
            if is_mapped(address):
                continue
            size = len(self.held.pop(address))
            alone = size >= SMALLEST_ALONE
            pieces[address if alone else address // UNIT] = -(-size // UNIT) * UNIT
            self.lost.append(address)
            self.seen["lost"] += 1
        empty = gone - sum(pieces.values())  # one empty slab may be kept
        assert empty in (0, UNIT), f"{gone} bytes are lost, and {empty} of them are nobody's"

    def share(self) -> None:
        if self.captures.is_open:
            return  # waiting for the context would invalidate the capture
        ok(cu.cuCtxSynchronize())  # the others do not wait for this process's work
        movable = [address for address in self.held if address not in self.fixed]
        address = self.rng.choice(movable) if movable else 0
        self.sharing.step(address, self.held.get(address))

    def touch(self, address: int, first: bytearray) -> None:
        """Write to the address the byte that is there."""
        ok(cu.cuCtxSetCurrent(ok(cu.cuDevicePrimaryCtxRetain(0))))
        ok(cu.cuMemcpyHtoD(address, bytes(first), 1))

    def compare(self) -> None:
        for address, model in self.held.items():
            content = bytearray(len(model))
            ok(cu.cuMemcpyDtoH(content, address, len(model)))
            assert content == model, f"{len(model)} bytes at {address:#x} are not what was written"
            self.seen["bytes"] += len(model)

    def check_size(self) -> None:
        """Check that freed memory is gone unless held back; a slab may hold a single allocation."""
        if self.captures.holds_back:
            return
        sizes = [len(model) for address, model in self.held.items() if address not in self.fixed]
        whole = sum(-(-size // UNIT) * UNIT for size in sizes if size >= SMALLEST_ALONE)
        slabs = 1 + sum(size < SMALLEST_ALONE for size in sizes)
        assert self.daemon.job.snapshot().swappable_bytes <= whole + slabs * UNIT

    def end(self, how: str) -> None:
        """End in the middle of a move in either direction, perhaps with a file on its way."""
        self.sharing.end()
        self.homes.give_missing()
        self.daemon.job.order(0)
        for _ in range(self.rng.randint(0, 12)):  # virtual milliseconds
            self.daemon.pass_a_millisecond()
        if self.daemon.job.snapshot().swap_done == self.daemon.job.newest_order:
            self.rng.choice((self.homes.offer, self.homes.offer_last, int))()
        if how == "left":
            self.daemon.job.connection.close()
            self.daemon.fake.close()
            self.compare()


def is_mapped(address: int) -> bool:
    """Tell whether movable memory is at the address now."""
    return cu.cuMemGetAccess(here(), address)[0] == cu.CUresult.CUDA_SUCCESS
