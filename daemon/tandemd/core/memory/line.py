"""Who waits for device memory, in which order, who may try now, and whom nobody can help.

Rules
1. One line, by arrival. A request is behind an earlier one if both are for memory of the same GPU,
   or, where the earlier one waits for its job's quota, if both are of that job; where it waits for
   what all jobs of its user may have of a GPU, if both are of that user, and on that GPU.
2. Who is first may try, again and again, until the memory is there. Who is behind may not, so that
   small requests do not starve a big one; except where all those ahead wait for memory of jobs
   that wait themselves: then jobs that hold some may.
3. Nobody waits for ever. What can never be met is refused at once. Where everybody who could give
   memory back waits as well, and has tried since the last change, the newest of those who hold
   some is refused: what it would have been told without the line. And every wait has its deadline,
   which the job's own side keeps, and which is checked here.

What a process says of itself is a hint: a lie gets it a wrong place in line, or none, and delays
others until its deadline at most. Which of its GPUs a request is for is not known; it counts for
all.
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
    """The request that a process says is its first."""

    process: Process
    job: Job
    wait: MemoryWait
    order: int
    since_ns: int
    quiet_since_ns: int  # since when the process does nothing else either
    is_refused: bool = False
    # Of the newest look at the line.
    limit_bytes: int = NO_LIMIT  # that is in its way if one is: of its job, or of all of its user
    is_of_user: bool = False
    is_of_gpu: bool = False  # what all jobs may have of its GPU is; to them there is no more
    sharers: Mapping[int, Process] = field(default_factory=dict)  # whose memory counts against it
    ahead: list[Waiter] = field(default_factory=list)  # first come first
    may_try: bool = False
    is_blocked: bool = False  # until jobs that wait give memory back, or have been served

    @property
    def is_quota(self) -> bool:
        """A limit is in its way, not what its GPU has left for jobs."""
        return self.wait.is_quota and not self.is_of_gpu

    def is_in_the_way_of(self, process: Process) -> bool:
        """Whether a later request of the process is behind this one."""
        if self.is_quota:
            return process.process_id in self.sharers
        return bool(self.process.memories & process.memories)

    def is_stuck(self, now_ns: int, options: Options) -> bool:
        """Whether the process can give no memory back by itself."""
        if self.process.usage.busy:
            return False
        return self.wait.is_alone or now_ns >= self.quiet_until_ns(options)

    def quiet_until_ns(self, options: Options) -> int:
        """When its other threads count as stuck, too, if they go on doing nothing."""
        return self.quiet_since_ns + options.memory_quiet_ns

    @property
    def is_leased(self) -> bool:
        """Its limit is what others leave it for now (shifts.py), and they can give it more."""
        return self.process.lease_bytes < self.job.spec.memory_bytes and not self.is_of_user

    @property
    def deadline_ns(self) -> int:
        """When it should have given up."""
        return self.since_ns + self.job.patience_ns + DEADLINE_SLACK_NS


class MemoryLine:
    """The line of all GPUs. Belongs to the scheduler, whose processes and jobs it reads."""

    def __init__(
        self,
        processes: Mapping[int, Process],
        jobs: Mapping[int, Job],
        groups: Mapping[GroupKey, Group],
    ) -> None:
        # What each GPU has for jobs; one that is missing is not known.
        self.capacity_bytes: dict[int, int] = {}
        self.ceilings = Ceilings(jobs, lambda: self.capacity_bytes)
        self.reserves = Reserves(processes, lambda: self.capacity_bytes, held_bytes)
        self.waiters: dict[int, Waiter] = {}  # by process; refused ones until they have left
        self.refusals = 0  # so far
        self._processes, self._jobs, self._groups = processes, jobs, groups
        self._asleep: set[int] = set()  # processes
        self._helped: set[int] = set()
        self._arrivals = 0

    def plausible(self, process: Process, said: Usage) -> Usage:
        """What a process says of itself, with no more that can be moved than its GPUs have.

        That much is plain memory of theirs, and the host gives room for as much as can go.
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
        """Where memory follows the turn (residency.py): whether that is news.

        `asleep`: processes that may try only when it is their turn; until then they are in nobody's
        way. `helped`: processes for which there is room once what can be moved has gone.
        """
        is_news = (asleep, helped) != (self._asleep, self._helped)
        self._asleep, self._helped = asleep, helped
        return is_news and bool(self.waiters)

    def take(self, process: Process, before: Usage, now_ns: int) -> bool:
        """Take in what a process says of itself now; whether it is news for the line."""
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
        """Which one is in its way: the one of which less is left."""
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
        """Who is in line, first come first."""
        standing = [waiter for waiter in self.waiters.values() if not waiter.is_refused]
        return sorted(standing, key=lambda waiter: waiter.order)

    def requests_of(self, group: Group) -> Iterator[int]:
        """What its processes ask for that others hold, in bytes."""
        for process_id in group.processes:
            waiter = self.waiters.get(process_id)
            if waiter is not None and not waiter.is_refused and not waiter.is_quota:
                yield waiter.wait.size_bytes

    def look(self, now_ns: int) -> list[Waiter]:
        """Refuse what can never be; find out who of the others, which are returned, may try."""
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
            # Behind one that is blocked, who may not try is so, too.
            stands_behind = not waiter.may_try and any(w.is_blocked for w in waiter.ahead)
            waiter.is_blocked = stands_behind or self._needs_others(waiter, standing)
        return standing

    def refuse(self, waiter: Waiter) -> None:
        """It gets no memory, and is told so."""
        waiter.is_refused = True
        self.refusals += 1

    def is_asleep(self, waiter: Waiter) -> bool:
        """It waits for its turn, not for what others hold."""
        return waiter.process.process_id in self._asleep and not waiter.is_quota

    def _is_impossible(self, waiter: Waiter) -> bool:
        spec = waiter.job.spec
        if not max(spec.wait_memory_ns, waiter.job.lease_patience_ns):
            # Nobody asked it to wait, but for what others can move.
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
        """Whether all memory of those who do not wait would not be enough."""
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
        """Those whom nobody can help, first come first.

        The greatest set whose members are stuck, have tried if they may, and wait only for each
        other.
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
        """Whose going on would help: those ahead, and those who have what it needs."""
        yield from (other.process for other in waiter.ahead)
        if waiter.is_quota and not waiter.is_leased:
            yield from (p for p in waiter.sharers.values() if p.usage.device_bytes)
            return
        memories = waiter.process.memories
        yield from (p for p in self._processes.values() if p.memories & memories and held_bytes(p))

    def beside_bytes(self, gpu: int, gpus: frozenset[int]) -> int:
        """What is held of the memory of `gpu` by processes on none of `gpus`."""
        if has_own_memory(gpu):
            return 0
        memory = memory_of(gpu)
        others = (p for p in self._processes.values() if memory in p.memories and not p.gpus & gpus)
        return sum(map(held_bytes, others))


def held_bytes(process: Process) -> int:
    """What it holds of a GPU: by its own count or, with the context, by the driver's.

    What it only says that it holds would keep others from memory that is free.
    """
    claimed_bytes = process.usage.resident_bytes - process.unheld_bytes
    return max(0, claimed_bytes) + process.unseen_bytes


def _kept_bytes(standing: list[Waiter], gpu: int) -> int:
    return sum(held_bytes(w.process) for w in standing if memory_of(gpu) in w.process.memories)


def _acted(before: Usage, after: Usage) -> bool:
    """Whether another thread than the one that waits did something, or the GPU did."""
    return (
        before.busy
        or after.busy
        or (before.launches, before.alloc_count, before.device_bytes, before.steps)
        != (after.launches, after.alloc_count, after.device_bytes, after.steps)
    )
