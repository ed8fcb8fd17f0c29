"""Who waits for device memory, in which order, who may try now, and whom nobody can help.

Rules
1. There is one line, in order of arrival. A request stands behind an earlier one if both ask for
   memory of the same GPU. If the earlier one waits for its job's quota, only requests of that job
   stand behind it; if it waits for what all jobs of its user may have of a GPU, only requests of
   that user on that GPU do.
2. The first request may try, again and again, until the memory is there. Requests behind it may
   not, so that small requests do not starve a big one. The exception: if all requests ahead wait
   for memory of jobs that wait themselves, jobs that hold some memory may try.
3. Nobody waits for ever. A request that can never be met is refused at once. If everybody who could
   give memory back waits as well, and has tried since the last change, the newest of those who hold
   some is refused: that is what it would have been told without the line. Every wait has a
   deadline, which the job's own side keeps and which is checked here.

What a process says about itself is a hint: a lie gets it a wrong place in the line, or none, and
delays others until its deadline at most. It is not known for which of the process's GPUs a request
is; it counts for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from tandemd.core.memory.ceilings import Ceilings
from tandemd.core.memory.memories import has_own_memory, memory_of
from tandemd.core.memory.reserves import Reserves
from tandemd.core.model import (
    NO_LIMIT,
    Group,
    GroupKey,
    Job,
    MemoryWait,
    Options,
    Process,
    Usage,
)

DEADLINE_SLACK_NS = 2_000_000_000  # for a request to leave by itself


@dataclass(slots=True, kw_only=True, eq=False)
class Waiter:
    """The first request of a process, as the process states it."""

    process: Process
    job: Job
    wait: MemoryWait
    order: int
    since_ns: int
    quiet_since_ns: int  # since when the process has done nothing else either
    is_refused: bool = False
    # As of the newest look at the line.
    limit_bytes: int = NO_LIMIT  # the one in its way, if any: its job's or its user's
    is_of_user: bool = False
    is_of_gpu: bool = False  # its GPU has no more for all jobs together
    sharers: Mapping[int, Process] = field(default_factory=dict)  # whose memory counts against it
    ahead: list[Waiter] = field(default_factory=list)  # in order of arrival
    may_try: bool = False
    is_blocked: bool = False  # until waiting jobs give memory back or are served

    @property
    def is_quota(self) -> bool:
        """True if a limit is in its way, not what its GPU has left for jobs."""
        return self.wait.is_quota and not self.is_of_gpu

    def is_in_the_way_of(self, process: Process) -> bool:
        """Tell whether a later request of the process stands behind this one."""
        if self.is_quota:
            return process.process_id in self.sharers
        return bool(self.process.memories & process.memories)

    def is_stuck(self, now_ns: int, options: Options) -> bool:
        """Tell whether the process cannot give memory back by itself."""
        if self.process.usage.busy:
            return False
        return self.wait.is_alone or now_ns >= self.quiet_until_ns(options)

    def quiet_until_ns(self, options: Options) -> int:
        """When the process's other threads count as stuck too, if they keep doing nothing."""
        return self.quiet_since_ns + options.memory_quiet_ns

    @property
    def is_leased(self) -> bool:
        """True if others limit it for now (shifts.py) and can give it more."""
        return self.process.lease_bytes < self.job.spec.memory_bytes and not self.is_of_user

    @property
    def deadline_ns(self) -> int:
        """When it should have given up by itself."""
        return self.since_ns + self.job.patience_ns + DEADLINE_SLACK_NS


class MemoryLine:
    """The line of all GPUs. Belongs to the scheduler, whose processes and jobs it reads."""

    def __init__(
        self,
        processes: Mapping[int, Process],
        jobs: Mapping[int, Job],
        groups: Mapping[GroupKey, Group],
    ) -> None:
        # What each GPU has for jobs; missing = not known.
        self.capacity_bytes: dict[int, int] = {}
        self.ceilings = Ceilings(jobs, lambda: self.capacity_bytes)
        self.reserves = Reserves(processes, lambda: self.capacity_bytes, held_bytes)
        self.waiters: dict[int, Waiter] = {}  # by process; refused ones stay until they have left
        self.refusals = 0  # so far
        self._processes, self._jobs, self._groups = processes, jobs, groups
        self._asleep: set[int] = set()  # processes
        self._helped: set[int] = set()
        self._arrivals = 0

    def plausible(self, process: Process, said: Usage) -> Usage:
        """Return what a process says of itself, movable memory capped at what its GPUs have.

        Movable memory is plain memory of those GPUs, and the host reserves room for as much as can
        move.
        """
        if not said.swappable_bytes:
            return said
        known = [self.capacity_bytes.get(gpu, 0) for gpu in process.gpus]
        most_bytes = sum(known)
        if said.swappable_bytes <= most_bytes or not all(known):
            return said
        swapped_bytes = min(said.swapped_bytes, most_bytes)
        return replace(said, swappable_bytes=most_bytes, swapped_bytes=swapped_bytes)

    def tell_turns(self, *, asleep: set[int], helped: set[int]) -> bool:
        """Take in what turns mean where memory follows them (residency.py); True if that is news.

        `asleep`: processes that may try only on their turn; until then they are in nobody's way.
        `helped`: processes for which there is room once what can be moved has gone.
        """
        is_news = (asleep, helped) != (self._asleep, self._helped)
        self._asleep, self._helped = asleep, helped
        return is_news and bool(self.waiters)

    def take(self, process: Process, before: Usage, now_ns: int) -> bool:
        """Take in what a process says of itself now; return whether it is news for the line."""
        wait = process.usage.memory_wait
        waiter = self.waiters.get(process.process_id)
        if wait is None:
            return self.waiters.pop(process.process_id, None) is not None
        if waiter is None or waiter.wait.ticket != wait.ticket:
            self._add(process, wait, now_ns)
            return True
        if _acted(before, process.usage):
            waiter.quiet_since_ns = now_ns
        is_news = waiter.wait != wait or before.busy != process.usage.busy
        if waiter.wait != wait:
            waiter.wait = wait
            self._find_limit(waiter)
        return is_news

    def _add(self, process: Process, wait: MemoryWait, now_ns: int) -> None:
        self._arrivals += 1
        self.waiters[process.process_id] = waiter = Waiter(
            process=process,
            job=self._jobs[process.job_id],
            wait=wait,
            order=self._arrivals,
            since_ns=now_ns,
            quiet_since_ns=now_ns,
        )
        self._find_limit(waiter)

    def _find_limit(self, waiter: Waiter) -> None:
        """Find the limit in its way: the one that leaves it less."""
        job, process = waiter.job, waiter.process
        group = self._groups[job.group_key]
        waiter.limit_bytes, waiter.sharers = job.spec.memory_bytes, job.processes
        left_bytes = self.ceilings.left(process, job, group)
        waiter.is_of_gpu = self.reserves.is_in_the_way(process, left_bytes)
        of_user = self.ceilings.in_the_way(process, job, group)
        waiter.is_of_user = of_user is not None
        if of_user is not None:
            gpu, waiter.limit_bytes = of_user
            waiter.sharers = self.ceilings.sharers(job.uid, gpu)

    @property
    def standing(self) -> list[Waiter]:
        """The requests in line, in order of arrival."""
        standing = [waiter for waiter in self.waiters.values() if not waiter.is_refused]
        return sorted(standing, key=lambda waiter: waiter.order)

    def requests_of(self, group: Group) -> Iterator[int]:
        """Yield the sizes, in bytes, of its processes' requests for memory that others hold."""
        for process_id in group.processes:
            waiter = self.waiters.get(process_id)
            if waiter is not None and not waiter.is_refused and not waiter.is_quota:
                yield waiter.wait.size_bytes

    def look(self, now_ns: int) -> list[Waiter]:
        """Refuse what can never be met; return the others, having found out who of them may try."""
        self.ceilings.look()
        for waiter in self.standing:
            self._find_limit(waiter)
            if self._is_impossible(waiter) or now_ns >= waiter.deadline_ns:
                self.refuse(waiter)
        standing = self.standing
        for place, waiter in enumerate(standing):
            waiter.ahead = [
                w
                for w in standing[:place]
                if w.is_in_the_way_of(waiter.process) and not self.is_asleep(w)
            ]
            helps = any(held_bytes(process) for process in waiter.job.processes.values())
            waiter.may_try = not self.is_asleep(waiter) and (
                not waiter.ahead or (helps and all(other.is_blocked for other in waiter.ahead))
            )
            # A request that may not try is blocked too if it stands behind a blocked one.
            stands_behind = not waiter.may_try and any(w.is_blocked for w in waiter.ahead)
            waiter.is_blocked = stands_behind or self._needs_others(waiter, standing)
        return standing

    def refuse(self, waiter: Waiter) -> None:
        """Refuse the request; its process is told so."""
        waiter.is_refused = True
        self.refusals += 1

    def is_asleep(self, waiter: Waiter) -> bool:
        """Tell whether the request waits for its turn rather than for what others hold."""
        return waiter.process.process_id in self._asleep and not waiter.is_quota

    def _is_impossible(self, waiter: Waiter) -> bool:
        spec = waiter.job.spec
        if not max(spec.wait_memory_ns, waiter.job.lease_patience_ns):
            # Nobody asked it to wait, except for memory that others can move.
            is_helped = spec.patience_ns and waiter.process.process_id in self._helped
            return waiter.is_quota or not is_helped
        gpus = waiter.process.gpus
        known = [self.capacity_bytes.get(gpu, 0) for gpu in gpus]
        most_bytes = min(spec.memory_bytes, max(known)) if all(known) else spec.memory_bytes
        ceilings = self.ceilings.on(waiter.job.uid, gpus)
        if ceilings.keys() == gpus:
            most_bytes = min(most_bytes, max(ceilings.values()))
        return waiter.wait.size_bytes > most_bytes

    def _needs_others(self, waiter: Waiter, standing: list[Waiter]) -> bool:
        """Tell whether all memory of those who do not wait would still not be enough."""
        size_bytes = waiter.wait.size_bytes
        if waiter.is_quota:
            same = [w.process for w in standing if w.process.process_id in waiter.sharers]
            kept_bytes = sum(process.usage.device_bytes for process in same)
            return waiter.limit_bytes - kept_bytes < size_bytes
        return all(
            self.capacity_bytes.get(gpu, 0) - _kept_bytes(standing, gpu) < size_bytes
            for gpu in waiter.process.gpus
        )

    def dead(
        self, has_tried: Callable[[Waiter], bool], now_ns: int, options: Options
    ) -> list[Waiter]:
        """Return the requests that nobody can help, in order of arrival.

        They are the largest set whose members are stuck, have tried if they may, and wait only for
        each other.
        """
        dead = [waiter for waiter in self.standing if waiter.is_stuck(now_ns, options)]
        dead = [w for w in dead if has_tried(w) or not w.may_try]
        dead = [w for w in dead if not self.is_asleep(w)]
        while True:
            ids = {waiter.process.process_id for waiter in dead}
            still = [w for w in dead if all(p.process_id in ids for p in self._helpers(w))]
            if len(still) == len(dead):
                return dead
            dead = still

    def _helpers(self, waiter: Waiter) -> Iterable[Process]:
        """Yield the processes whose progress would help: those ahead, and holders of the memory."""
        yield from (other.process for other in waiter.ahead)
        if waiter.is_quota and not waiter.is_leased:
            yield from (p for p in waiter.sharers.values() if p.usage.device_bytes)
            return
        memories = waiter.process.memories
        yield from (p for p in self._processes.values() if p.memories & memories and held_bytes(p))

    def beside_bytes(self, gpu: int, gpus: frozenset[int]) -> int:
        """Return what processes on none of `gpus` hold of the memory of `gpu`."""
        if has_own_memory(gpu):
            return 0
        memory = memory_of(gpu)
        others = (p for p in self._processes.values() if memory in p.memories and not p.gpus & gpus)
        return sum(map(held_bytes, others))


def held_bytes(process: Process) -> int:
    """Return what a process holds of a GPU: by its own count or, with the context, by the driver's.

    Memory that the process only claims to hold is left out: it would keep others from memory that
    is free.
    """
    claimed_bytes = process.usage.resident_bytes - process.unheld_bytes
    return max(0, claimed_bytes) + process.unseen_bytes


def _kept_bytes(standing: list[Waiter], gpu: int) -> int:
    return sum(held_bytes(w.process) for w in standing if memory_of(gpu) in w.process.memories)


def _acted(before: Usage, after: Usage) -> bool:
    """Tell whether a thread other than the waiting one did something, or the GPU did."""
    return (
        before.busy
        or after.busy
        or (before.launches, before.alloc_count, before.device_bytes, before.steps)
        != (after.launches, after.alloc_count, after.device_bytes, after.steps)
    )
