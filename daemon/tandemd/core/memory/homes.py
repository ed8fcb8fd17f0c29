"""Where each process keeps its memory on the host: in memory pools, and in files.

If files are allowed and all host memory is given away, a pool moves to a file: one of the process
that will need its memory last. The pool is copied, the process switches to the file, and the memory
of the pool is free. A pool with nothing in it can be asked back.

    MEMORY -> COPYING -> OFFERED -> FILE -> gone, when everything in it is back on the GPU
    | ^ ^---------'----------'   the copy failed, or the process moves its memory meanwhile
    | '-------.   something is in it again
    '---> ASKED_BACK -> gone
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto

from tandemd.core.events import CopyPool, DropFile, DropPool, OfferFile, TakeBack
from tandemd.core.model import Options, Process, SwapOutcome

MIB = 1 << 20
UNIT = 2 * MIB  # shm::kSwapUnit: moved memory is counted in whole units
PIECE = 32 * MIB  # kPieceBytes of shim/swap/regions.cpp: pieces of at most this move as a whole
BEYOND = PIECE - UNIT  # a move may overshoot by this much with its last piece
RETRY_NS = 10_000_000_000  # left alone for this after it did not take a file, or give back,
MOST_RETRY_NS = 64 * RETRY_NS  # and twice as long each time it happens again: copies cost

HomeAction = CopyPool | OfferFile | DropPool | DropFile | TakeBack


def in_units(size_bytes: int) -> int:
    """Round a size up to whole units."""
    return -(-size_bytes // UNIT) * UNIT


class Tier(Enum):
    """Where a pool is."""

    MEMORY = auto()
    COPYING = auto()  # to a file; stays in memory until the process has switched to it
    OFFERED = auto()
    FILE = auto()
    ASKED_BACK = auto()  # in memory until the process has confirmed that nothing is in it


FILED = (Tier.COPYING, Tier.OFFERED, Tier.FILE)  # has a file, or is about to


@dataclass(slots=True, kw_only=True)
class Pool:
    """Memory that a process was given at once."""

    number: int  # of the order that it came with
    size_bytes: int
    tier: Tier = Tier.MEMORY


@dataclass(slots=True, kw_only=True)
class Home:
    """The host memory and files of one process."""

    process: Process
    pools: list[Pool] = field(default_factory=list)
    offer: int = 0  # order that asks it to take a file, or to give back, while that lasts
    answer_due_ns: int = 0  # after that nobody waits for the answer any longer
    let_alone_until_ns: int = 0
    retry_ns: int = RETRY_NS  # how long it is left alone the next time
    spare_since_ns: int | None = None  # since when it has had memory that it has no use for
    told: str = ""  # why it could not be copied to a file, as last told

    @property
    def memory_bytes(self) -> int:
        """Host memory that it holds."""
        return sum(pool.size_bytes for pool in self.pools if pool.tier is not Tier.FILE)

    @property
    def file_bytes(self) -> int:
        """Size of its pools that are in files, or about to be."""
        return sum(pool.size_bytes for pool in self.pools if pool.tier in FILED)

    def lacks_bytes(self, target_bytes: int) -> int:
        """Return what the host must give so that at most `target_bytes` stay on the GPU, in units.

        The figures are the process's own and may be anything; nothing is given for memory that the
        driver denies.
        """
        lacks_bytes, resident_bytes = self._lacks_and_resident_bytes
        if target_bytes < resident_bytes:
            lacks_bytes += resident_bytes - max(0, target_bytes - BEYOND)
        return in_units(max(0, lacks_bytes))

    def least_bytes(self, left_bytes: int) -> int | None:
        """Return the least that can stay on the GPU if the host has `left_bytes`, in whole units.

        None: that is too little even for what is on the host already.
        """
        lacks_bytes, resident_bytes = self._lacks_and_resident_bytes
        left_bytes = left_bytes // UNIT * UNIT
        if left_bytes < max(0, lacks_bytes):
            return None
        may_go_bytes = left_bytes - lacks_bytes
        if may_go_bytes >= resident_bytes:
            return 0
        return in_units(resident_bytes + min(0, BEYOND - may_go_bytes))

    @property
    def _lacks_and_resident_bytes(self) -> tuple[int, int]:
        """What the host lacks if nothing goes (negative: it has more), and what can go."""
        usage = self.process.usage
        resident_bytes = usage.swappable_bytes - usage.swapped_bytes
        # The process counts managed memory whole; the driver counts only the part that is there.
        others_bytes = max(0, usage.device_bytes - usage.swappable_bytes)
        resident_bytes -= max(0, self.process.unheld_bytes - others_bytes)
        usable_bytes = sum(
            pool.size_bytes for pool in self.pools if pool.tier not in (Tier.FILE, Tier.ASKED_BACK)
        )
        # The two figures are not reported at once, and what is back from a file is no longer away.
        filed_bytes = min(usage.filed_bytes, usage.swapped_bytes)
        return usage.swapped_bytes - filed_bytes - usable_bytes, resident_bytes

    @property
    def underway(self) -> Pool | None:
        """The pool on its way to a file or back; there is at most one."""
        on_its_way = (Tier.COPYING, Tier.OFFERED, Tier.ASKED_BACK)
        return next((pool for pool in self.pools if pool.tier in on_its_way), None)

    @property
    def look_again_ns(self) -> int:
        """When there is more to do about it, even without news."""
        return self.let_alone_until_ns if self.underway is None else self.answer_due_ns

    def leaving_bytes(self, now_ns: int) -> int:
        """Return the memory about to become free; nothing if its process is late to answer."""
        pool = self.underway
        if pool is None or (pool.tier is not Tier.COPYING and now_ns >= self.answer_due_ns):
            return 0
        return pool.size_bytes

    @property
    def is_asked(self) -> bool:
        """True while it is to take a file or give back; it then gets no other order."""
        pool = self.underway
        return pool is not None and pool.tier is not Tier.COPYING

    def give(self, order: int, size_bytes: int) -> None:
        """Add a pool of this size, which comes with the order."""
        if size_bytes:
            self.pools.append(Pool(number=order, size_bytes=size_bytes))

    def take_back(self, number: int) -> None:
        """Drop the pool of that order: it could not be had."""
        self.pools = [pool for pool in self.pools if pool.number != number]

    def stop_copying(self) -> Iterator[DropFile]:
        """Give up a copy in progress: what is in memory changes, so the copy is of no use."""
        pool = self.underway
        if pool is not None and pool.tier is Tier.COPYING:
            pool.tier = Tier.MEMORY
            yield self._drop_file(pool)

    def copied(self, number: int, *, order: int, why_not: str, now_ns: int) -> OfferFile | None:
        """Take in that a copy ended; return the offer of the file to the process, or None.

        `order` is the order by which it is to take the file. A copy that failed, or is not wanted
        any more, leads to no offer.
        """
        pool = self.underway
        if pool is None or pool.number != number or pool.tier is not Tier.COPYING:
            return None
        if why_not:
            pool.tier = Tier.MEMORY
            self._let_alone(now_ns)
            return None
        pool.tier, self.offer = Tier.OFFERED, order
        self.answer_due_ns = now_ns + RETRY_NS
        return OfferFile(
            process_id=self.process.process_id, pool=number, order=order, since=order - 1
        )

    def answered(self, now_ns: int) -> Iterator[HomeAction]:
        """Take in new usage: it may have taken the file, or need one no longer."""
        usage = self.process.usage
        pool = self.underway
        if pool is not None and self.is_asked and usage.swap_done == self.offer:
            is_asked_back = pool.tier is Tier.ASKED_BACK
            if usage.swap_outcome is SwapOutcome.REACHED:
                pool.tier, self.retry_ns = Tier.FILE, RETRY_NS
                if is_asked_back:
                    self.pools.remove(pool)
                yield DropPool(process_id=usage.process_id, pool=pool.number)
            else:
                pool.tier = Tier.MEMORY
                self._let_alone(now_ns)
                if not is_asked_back:
                    yield self._drop_file(pool)
        if usage.filed_bytes == 0:
            for each in [pool for pool in self.pools if pool.tier is Tier.FILE]:
                self.pools.remove(each)
                yield self._drop_file(each)

    def largest_pool(self, *, most_bytes: int) -> Pool | None:
        """Return its largest pool in memory of at most `most_bytes`."""
        fits = [
            pool
            for pool in self.pools
            if pool.tier is Tier.MEMORY and pool.size_bytes <= most_bytes
        ]
        return max(fits, key=lambda pool: pool.size_bytes, default=None)

    def spare_pool(self, *, is_idle: bool) -> Pool | None:
        """Return the largest pool that it has no use for; if it is idle, that may be any pool."""
        if self.underway is not None:
            return None
        used_bytes = 0
        if not is_idle:
            used_bytes = max(0, self.process.usage.swappable_bytes - self.process.usage.filed_bytes)
        return self.largest_pool(most_bytes=self.memory_bytes - used_bytes)

    def ask_back(self, pool: Pool, *, order: int, now_ns: int) -> TakeBack:
        """Ask the process by `order` to give the pool back."""
        pool.tier, self.offer = Tier.ASKED_BACK, order
        self.answer_due_ns = now_ns + RETRY_NS
        return TakeBack(
            process_id=self.process.process_id, pool=pool.number, order=order, since=order - 1
        )

    def _let_alone(self, now_ns: int) -> None:
        self.let_alone_until_ns = now_ns + self.retry_ns
        self.retry_ns = min(2 * self.retry_ns, MOST_RETRY_NS)

    def _drop_file(self, pool: Pool) -> DropFile:
        return DropFile(process_id=self.process.process_id, pool=pool.number)


def memory_left_bytes(homes: Iterable[Home], options: Options) -> int:
    """Return what is left of the host's memory."""
    return max(0, options.host_limit_bytes - sum(home.memory_bytes for home in homes))


def make_room(
    homes: list[Home], coldest: Iterable[Home], wanted_bytes: int, options: Options, now_ns: int
) -> Iterator[CopyPool]:
    """Have pools copied to files until `wanted_bytes` of memory are left or about to be.

    `coldest`: homes that are not moving, the one whose memory is needed last first.
    """
    missing = wanted_bytes - memory_left_bytes(homes, options)
    missing -= sum(home.leaving_bytes(now_ns) for home in homes)
    left_bytes = options.file_limit_bytes - sum(home.file_bytes for home in homes)
    for home in coldest:
        if missing <= 0:
            return
        if home.underway is not None or now_ns < home.let_alone_until_ns:
            continue
        pool = home.largest_pool(most_bytes=left_bytes)
        if pool is None:
            continue
        pool.tier = Tier.COPYING
        missing -= pool.size_bytes
        left_bytes -= pool.size_bytes
        yield CopyPool(
            process_id=home.process.process_id, pool=pool.number, size_bytes=pool.size_bytes
        )
