"""Memory of each GPU that is kept free of all jobs together, whatever limits they have.

To all other code here such a GPU is that much smaller (`MemoryLine.capacity_bytes`): for promises,
admission, and moves to the host. This module tells each process what the others leave it of that
room, as what it may hold for now. Two processes that allocate at the same moment may therefore
exceed it until the next look.
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
    """What is kept free of one GPU."""

    size_bytes: int
    key: str = ""  # the configuration key that sets it


class Reserves:
    """The reserves of all GPUs. Belongs to the scheduler, whose processes it reads."""

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
        self.gave_more = False  # to some process, the last time `tell` was called

    def put(self, reserves: Mapping[int, Reserve]) -> None:
        """Replace the reserves. They hold for what comes; nothing is taken from whoever has it."""
        self._is_news |= bool(reserves or self._by_gpu)
        self._by_gpu = dict(reserves)

    def of(self, gpu: int) -> Reserve | None:
        """Return the GPU's reserve, or None if all of the GPU is for jobs."""
        return self._by_gpu.get(gpu)

    @property
    def sizes_bytes(self) -> Mapping[int, int]:
        """By GPU, for those that have a reserve."""
        return {gpu: reserve.size_bytes for gpu, reserve in self._by_gpu.items()}

    def note(self) -> None:
        """Note that some process holds more or less than before, or is new."""
        self._is_news |= bool(self._by_gpu)

    def limit_bytes(self, process: Process) -> int:
        """Return what its GPUs have for jobs at all: the size they appear to have to it."""
        capacity_bytes = self._capacity_bytes()
        return min((capacity_bytes[gpu] for gpu in self._kept(process)), default=NO_LIMIT)

    def held_bytes(self, gpu: int) -> int:
        """Return what all jobs hold there; a process on several GPUs counts on each of them."""
        memory = memory_of(gpu)
        there = (p for p in self._processes.values() if memory in p.memories)
        return sum(map(self._held_bytes, there))

    def is_in_the_way(self, process: Process, left_bytes: int) -> bool:
        """Tell whether the reserve leaves the process less than its lease and than `left_bytes`.

        `left_bytes` is what limits leave it.
        """
        return process.room_bytes < min(left_bytes, process.lease_bytes)

    def tell(self) -> Iterator[SetMemoryLease]:
        """Yield what each process may hold from now on, where that has changed."""
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
        """Return it as the process counts: with what is on the host, and without contexts."""
        own_bytes, capacity_bytes = self._held_bytes(process), self._capacity_bytes()
        rooms = [
            capacity_bytes[gpu] - held_bytes[memory_of(gpu)] + own_bytes
            for gpu in self._kept(process)
        ]
        if not rooms:
            return NO_LIMIT
        usage = process.usage
        left_bytes = min(rooms) - process.unseen_bytes + usage.swapped_bytes
        return max(left_bytes, usage.device_bytes)  # it may keep using what it has

    def _kept(self, process: Process) -> list[int]:
        """Return those of its GPUs of which something is kept free."""
        known = self._capacity_bytes()
        return [gpu for gpu in process.gpus if gpu in self._by_gpu and gpu in known]
