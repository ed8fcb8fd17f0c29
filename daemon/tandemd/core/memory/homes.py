"""Where on the host the memory of each process lies: in pools of its memory, and in files.

Where there are files and the host's memory is all given away, a pool of the process that needs its
own last goes to a file: it is copied, the process takes the file for it, and its memory is free. A
pool that has nothing in it can be asked back.

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
UNIT = 2 * MIB  # shm::kSwapUnit: what is moved counts in full units
PIECE = 32 * MIB  # kPieceBytes of shim/swap/regions.cpp: the most that moves at once, and whole
BEYOND = PIECE - UNIT  # and with the last that goes, so much more than had to
RETRY_NS = 10_000_000_000  # a process that did not take a file, or give back, is let alone so long,
MOST_RETRY_NS = 64 * RETRY_NS  # and twice as long each time it does so again: copies cost

HomeAction = CopyPool | OfferFile | DropPool | DropFile | TakeBack


def in_units(size_bytes: int) -> int:
    """As much and no more than that needs of full units."""
    return -(-size_bytes // UNIT) * UNIT


class Tier(Enum):
    """Where a pool is."""

    MEMORY = auto()
    COPYING = auto()  # to a file; in memory until the process has taken that
    OFFERED = auto()
    FILE = auto()
    ASKED_BACK = auto()  # in memory until the process has said that nothing is in it


FILED = (Tier.COPYING, Tier.OFFERED, Tier.FILE)  # there is a file, or about to be


@dataclass(slots=True, kw_only=True)
class Pool:
    """What a process was given at once."""

    number: int  # the order that it came with
    size_bytes: int
    tier: Tier = Tier.MEMORY


@dataclass(slots=True, kw_only=True)
class Home:
    """Of one process."""

    process: Process
    pools: list[Pool] = field(default_factory=list)
    offer: int = 0  # order by which it takes the file, or gives back, while that is asked of it
    answer_due_ns: int = 0  # to that: nobody else waits for it any longer
    let_alone_until_ns: int = 0
    retry_ns: int = RETRY_NS  # how long it is let alone the next time
    spare_since_ns: int | None = None  # it has memory that it has no use for
    told: str = ""  # why it could not, when that was last told

    @property
    def memory_bytes(self) -> int:
        """Of the host's memory, its own."""
        return sum(pool.size_bytes for pool in self.pools if pool.tier is not Tier.FILE)

    @property
    def file_bytes(self) -> int:
        """Of files, its own or about to be."""
        return sum(pool.size_bytes for pool in self.pools if pool.tier in FILED)

    def lacks_bytes(self, target_bytes: int) -> int:
        """What the host has to give for no more than that to stay on the GPU, in full units.

        The figures are the process's own, and may be anything; for what the driver denies there is
        nothing to give.
        """
        lacks_bytes, resident_bytes = self._lacks_and_resident_bytes
        if target_bytes < resident_bytes:
            lacks_bytes += resident_bytes - max(0, target_bytes - BEYOND)
        return in_units(max(0, lacks_bytes))

    def least_bytes(self, left_bytes: int) -> int | None:
        """The least that can stay on the GPU where the host has so much left, in full units.

        None: even for what is on the host already it has too little.
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
        """What the host lacks, less than nothing if it has more, though nothing goes; what can."""
        usage = self.process.usage
        resident_bytes = usage.swappable_bytes - usage.swapped_bytes
        # Managed memory counts whole with the process, and with the driver what of it is there.
        others_bytes = max(0, usage.device_bytes - usage.swappable_bytes)
        resident_bytes -= max(0, self.process.unheld_bytes - others_bytes)
        usable_bytes = sum(
            pool.size_bytes for pool in self.pools if pool.tier not in (Tier.FILE, Tier.ASKED_BACK)
        )
        # The two are not told at once, and what is back from a file is not away any more.
        filed_bytes = min(usage.filed_bytes, usage.swapped_bytes)
        return usage.swapped_bytes - filed_bytes - usable_bytes, resident_bytes

    @property
    def underway(self) -> Pool | None:
        """The pool on its way to a file or back: one at a time."""
        on_its_way = (Tier.COPYING, Tier.OFFERED, Tier.ASKED_BACK)
        return next((pool for pool in self.pools if pool.tier in on_its_way), None)

    @property
    def look_again_ns(self) -> int:
        """When something else can be done about it, though nothing of it is new."""
        return self.let_alone_until_ns if self.underway is None else self.answer_due_ns

    def leaving_bytes(self, now_ns: int) -> int:
        """Of memory, what is about to be free; of a process that does not answer, nothing."""
        pool = self.underway
        if pool is None or (pool.tier is not Tier.COPYING and now_ns >= self.answer_due_ns):
            return 0
        return pool.size_bytes

    @property
    def is_asked(self) -> bool:
        """It is to take a file, or to give back: until it answers, it gets no other order."""
        pool = self.underway
        return pool is not None and pool.tier is not Tier.COPYING

    def give(self, order: int, size_bytes: int) -> None:
        """It gets so much with an order."""
        if size_bytes:
            self.pools.append(Pool(number=order, size_bytes=size_bytes))

    def take_back(self, number: int) -> None:
        """What came with that order has not come."""
        self.pools = [pool for pool in self.pools if pool.number != number]

    def stop_copying(self) -> Iterator[DropFile]:
        """What is in memory changes: a copy of it is of no use."""
        pool = self.underway
        if pool is not None and pool.tier is Tier.COPYING:
            pool.tier = Tier.MEMORY
            yield self._drop_file(pool)

    def copied(self, number: int, *, order: int, why_not: str, now_ns: int) -> OfferFile | None:
        """The file is there, to be taken by `order`, or it is not. None: nothing comes of it."""
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
        """Its usage is new: it may have taken the file, or need one no longer."""
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
        """The largest pool of it in memory, of no more than so much."""
        fits = [
            pool
            for pool in self.pools
            if pool.tier is Tier.MEMORY and pool.size_bytes <= most_bytes
        ]
        return max(fits, key=lambda pool: pool.size_bytes, default=None)

    def spare_pool(self, *, is_idle: bool) -> Pool | None:
        """The largest pool that it has no use for: of one that is idle, any."""
        if self.underway is not None:
            return None
        used_bytes = 0
        if not is_idle:
            used_bytes = max(0, self.process.usage.swappable_bytes - self.process.usage.filed_bytes)
        return self.largest_pool(most_bytes=self.memory_bytes - used_bytes)

    def ask_back(self, pool: Pool, *, order: int, now_ns: int) -> TakeBack:
        """It is to give the pool back, by `order`."""
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
    """What is left of the host's memory."""
    return max(0, options.host_limit_bytes - sum(home.memory_bytes for home in homes))


def make_room(
    homes: list[Home], coldest: Iterable[Home], wanted_bytes: int, options: Options, now_ns: int
) -> Iterator[CopyPool]:
    """Have pools copied to files until `wanted_bytes` of memory are or will be left.

    `coldest`: those whose memory is needed last, first, and which are still.
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
