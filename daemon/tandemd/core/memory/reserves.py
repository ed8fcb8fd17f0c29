"""What of each GPU's memory is kept free of all jobs together, whatever limits they have.

To all else here such a GPU is that much smaller (`MemoryLine.capacity_bytes`): what is promised,
who is let in, what moves to the host. Here each process is told what the others leave it of that,
as what it may hold for now; what two take at the same moment may exceed it until the next look.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tandemd.core.events import SetMemoryLease
from tandemd.core.memory.memories import memory_of
from tandemd.core.model import NO_LIMIT, Process


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserve:
    """Of one GPU."""

    size_bytes: int
    key: str = ""  # of the configuration that says so


class Reserves:
    """Those of all GPUs. Belongs to the scheduler, whose processes it reads."""

    def __init__(
        self,
        processes: Mapping[int, Process],
        capacity_bytes: Callable[[], Mapping[int, int]],
        held_bytes: Callable[[Process], int],
    ) -> None:
        """`capacity_bytes`: by GPU, without its reserve; `held_bytes`: contexts included."""
        self._processes, self._held_bytes = processes, held_bytes
        self._capacity_bytes = capacity_bytes
        self._by_gpu: dict[int, Reserve] = {}
        self._is_news = False
        self.gave_more = False  # to somebody, when it was told last

    def put(self, reserves: Mapping[int, Reserve]) -> None:
        """Those there are from now on, for what comes; nothing is taken from whoever has it."""
        self._is_news |= bool(reserves or self._by_gpu)
        self._by_gpu = dict(reserves)

    def of(self, gpu: int) -> Reserve | None:
        """None: all of it is for jobs."""
        return self._by_gpu.get(gpu)

    @property
    def sizes_bytes(self) -> Mapping[int, int]:
        """By GPU, of those that have one."""
        return {gpu: reserve.size_bytes for gpu, reserve in self._by_gpu.items()}

    def note(self) -> None:
        """Somebody holds more or less than before, or came."""
        self._is_news |= bool(self._by_gpu)

    def limit_bytes(self, process: Process) -> int:
        """What its GPUs have for jobs at all: as large as they look to it."""
        capacity_bytes = self._capacity_bytes()
        return min((capacity_bytes[gpu] for gpu in self._kept(process)), default=NO_LIMIT)

    def held_bytes(self, gpu: int) -> int:
        """What all jobs hold there. Of one on several GPUs it is not known where: on each."""
        memory = memory_of(gpu)
        there = (p for p in self._processes.values() if memory in p.memories)
        return sum(map(self._held_bytes, there))

    def is_in_the_way(self, process: Process, left_bytes: int) -> bool:
        """Whether it leaves less than what the process is lent, and than limits: `left_bytes`."""
        return process.room_bytes < min(left_bytes, process.lease_bytes)

    def tell(self) -> Iterator[SetMemoryLease]:
        """What each process may hold from now on, where that is something else than before."""
        self.gave_more = False
        if not self._is_news:
            return
        self._is_news = False
        held_bytes = defaultdict[int, int](int)
        for process in self._processes.values():
            for memory in process.memories:
                held_bytes[memory] += self._held_bytes(process)
        for process in self._processes.values():
            room_bytes = self._room_bytes(process, held_bytes)
            if room_bytes != process.room_bytes:
                before, process.room_bytes = process.bound_bytes, room_bytes
                self.gave_more |= process.bound_bytes > before
                if before != process.bound_bytes:
                    yield SetMemoryLease(
                        process_id=process.process_id, lease_bytes=process.bound_bytes
                    )

    def _room_bytes(self, process: Process, held_bytes: Mapping[int, int]) -> int:
        """By its own count, which has what is on the host in it, and contexts not."""
        own_bytes, capacity_bytes = self._held_bytes(process), self._capacity_bytes()
        rooms = [
            capacity_bytes[gpu] - held_bytes[memory_of(gpu)] + own_bytes
            for gpu in self._kept(process)
        ]
        if not rooms:
            return NO_LIMIT
        usage = process.usage
        left_bytes = min(rooms) - process.unseen_bytes + usage.swapped_bytes
        return max(left_bytes, usage.device_bytes)  # what it has stays usable

    def _kept(self, process: Process) -> list[int]:
        """Its GPUs of which something is kept free."""
        known = self._capacity_bytes()
        return [gpu for gpu in process.gpus if gpu in self._by_gpu and gpu in known]
