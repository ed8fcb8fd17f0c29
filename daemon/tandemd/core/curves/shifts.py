"""When iterations begin, and what each job may hold meanwhile, so that their memory fits together.

Rules
1. Nothing is held back as long as the peaks of all fit together.
2. Otherwise at most two jobs are within an iteration. A job may begin one when the smallest shift
   of its memory curve against the other's is 0 (curves.py), which is checked at each beginning and
   while it waits. Of several waiting jobs the one that was served least comes first, and none
   begins while another job waits for memory that it would take.
3. What a job may hold is lent (leases.py): a job that drifts from its curve waits at an allocation,
   in the line for memory. A job that has ended no iteration yet may need everything.
4. A job that stands in the middle of an iteration is kept there only as long as one of those within
   an iteration can end its own beside it. Otherwise it goes on, if it can: kept there, it would
   hold what they need.
5. Nobody is kept for longer than `max_hold_ns`: then it begins, and its allocations wait.

The job's own mark (`tandem.step`) says where an iteration begins, and its process stops there by
itself. A job without marks is stopped by its gate where it holds least, by its curve (laps.py), or,
before a curve was recorded, when the end of an iteration is found; either is a little into the next
iteration. As long as no end is found, it is within one iteration for good, and others cannot have
what it holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tandemd.core.curves.curves import smallest_shift
from tandemd.core.curves.leases import lend
from tandemd.core.curves.tenants import Tenant, objection
from tandemd.core.events import Action, SetMemoryLease, SetStepLimit
from tandemd.core.memory.line import held_bytes
from tandemd.core.memory.memories import memory_of
from tandemd.core.model import NO_LIMIT, Group, Job, Options, Process

LOOK_NS = 1_000_000  # between looks while leases follow progress: one round of the poller
PATIENCE_NS = 600_000_000_000  # the longest that an allocation beyond a lease waits


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """Processes that share the memory of a GPU by their curves."""

    tenants: list[Tenant]
    budget_bytes: int  # for all of them together

    @property
    def within(self) -> list[Tenant]:
        """Those in the middle of an iteration, in order of arrival."""
        return [tenant for tenant in self.tenants if tenant.is_within]

    @property
    def free_bytes(self) -> int:
        """Memory that none of them holds."""
        return self.budget_bytes - sum(tenant.held_bytes for tenant in self.tenants)


class Shifts:
    """The decisions for all GPUs. Pure; belongs to the scheduler, whose values it reads."""

    def __init__(self, processes: Mapping[int, Process], jobs: Mapping[int, Job]) -> None:
        self.wake_at_ns: int | None = None
        self.moved: list[Group] = []  # groups whose `is_kept` the newest decision changed
        self.patience_changed = False  # a job's patience, in the newest decision
        self.has_lent_more = False  # to a process that waits for memory
        self._processes = processes
        self._jobs = jobs
        self._tenants: dict[int, Tenant] = {}  # by process id; empty costs nothing
        self._actions: list[Action] = []

    @property
    def is_used(self) -> bool:
        """True if any process is affected, or a wake-up time must be cleared."""
        return bool(self._tenants) or self.wake_at_ns is not None

    def tenant(self, process_id: int) -> Tenant | None:
        """Return what was decided about a process; None: nothing."""
        return self._tenants.get(process_id)

    def forget(self, process_id: int) -> None:
        """Drop a process that is gone."""
        self._tenants.pop(process_id, None)

    def decide(
        self,
        groups: Iterable[Group],
        capacity_bytes: Mapping[int, int],
        options: Options,
        now_ns: int,
    ) -> list[Action]:
        """Decide who begins and what each may hold; the policy leaves `groups` to curves."""
        self.wake_at_ns, self.moved = None, []
        self.patience_changed = self.has_lent_more = False
        for crowd in self._crowds(groups, capacity_bytes, options, now_ns):
            if _fits(crowd, now_ns, options):
                for tenant in crowd.tenants:
                    self._release(tenant)
                continue
            self._begin_some(crowd, options, now_ns)
            self._settle(crowd, options, now_ns)
        actions, self._actions = self._actions, []
        return actions

    def _crowds(
        self,
        groups: Iterable[Group],
        capacity_bytes: Mapping[int, int],
        options: Options,
        now_ns: int,
    ) -> list[Crowd]:
        wanted = {
            process.process_id: (process, group)
            for group in groups
            if objection(group, options) is None
            for process in group.processes.values()
            if process.gpu in capacity_bytes
        }
        for process_id in self._tenants.keys() - wanted.keys():
            self._drop(self._tenants.pop(process_id))
        by_gpu: dict[int, list[Tenant]] = {}
        for process_id, (process, group) in wanted.items():
            tenant = self._tenants.get(process_id) or self._take(process, group)
            tenant.watch(now_ns, options)
            if tenant.ends or tenant.is_new(now_ns, options):
                by_gpu.setdefault(process.gpu, []).append(tenant)
            else:
                self._release(tenant)
        return [
            Crowd(tenants=tenants, budget_bytes=self._budget(gpu, tenants, capacity_bytes[gpu]))
            for gpu, tenants in by_gpu.items()
        ]

    def _take(self, process: Process, group: Group) -> Tenant:
        job = self._jobs[process.job_id]
        tenant = self._tenants[process.process_id] = Tenant(process=process, job=job, group=group)
        self.patience_changed |= job.lease_patience_ns != PATIENCE_NS
        job.lease_patience_ns = PATIENCE_NS
        return tenant

    def _drop(self, tenant: Tenant) -> None:
        self._release(tenant)
        tenant.job.lease_patience_ns = 0
        self.patience_changed = True

    def _budget(self, gpu: int, tenants: list[Tenant], capacity_bytes: int) -> int:
        """Return what the tenants may hold by their own counts: without others and overheads."""
        own = {tenant.process.process_id for tenant in tenants}
        here = (p for p in self._processes.values() if memory_of(gpu) in p.memories)
        others = (p for p in here if p.process_id not in own)
        unseen_bytes = sum(tenant.process.unseen_bytes for tenant in tenants)
        return capacity_bytes - unseen_bytes - sum(held_bytes(process) for process in others)

    def _release(self, tenant: Tenant) -> None:
        tenant.ends_allowed, tenant.kept_since_ns, tenant.reason = 0, None, ""
        self._show(tenant)
        self._lend(tenant, NO_LIMIT)

    def _begin_some(self, crowd: Crowd, options: Options, now_ns: int) -> None:
        for tenant in crowd.tenants:
            if not tenant.ends_allowed:  # not held until now: it ends what it has begun
                tenant.ends_allowed = tenant.ends + 1
        standing = [tenant for tenant in crowd.tenants if tenant.stands]
        standing.sort(key=lambda tenant: (tenant.group.virtual_ns, tenant.group.arrival))
        _let_on(standing, crowd, options, now_ns)
        while standing and self._begins(standing[0], crowd, options, now_ns):
            standing.pop(0)
        _let_on(standing, crowd, options, now_ns)  # before those that began take what it would need
        for tenant in standing[1:]:
            tenant.keep(now_ns, f"{standing[0].group.title} begins first")
        for tenant in standing:
            until_ns = now_ns + options.max_hold_ns - tenant.kept_ns(now_ns)
            self._wake(max(until_ns, now_ns + LOOK_NS))

    def _begins(self, tenant: Tenant, crowd: Crowd, options: Options, now_ns: int) -> bool:
        shift_ns, reason = self._shift(tenant, crowd, options, now_ns)
        if shift_ns == 0:
            tenant.begin()
            return True
        tenant.keep(now_ns, reason)
        if shift_ns is not None:
            self._wake(now_ns + max(shift_ns, LOOK_NS))
        return False

    def _shift(
        self, tenant: Tenant, crowd: Crowd, options: Options, now_ns: int
    ) -> tuple[int | None, str]:
        """Return the time until it may begin, and why it may not now."""
        within = crowd.within
        if not within or tenant.kept_ns(now_ns) >= options.max_hold_ns:
            return 0, ""
        other = within[0]
        title = other.group.title
        if len(within) > 1:
            return None, f"{title} and {within[1].group.title} are in the middle of an iteration"
        if tenant.group.key[0] != other.group.key[0]:
            return None, f"{title} is another user's: only jobs of one user run side by side"
        if other.wants_memory > crowd.free_bytes and tenant.will_give_back:
            return 0, ""  # otherwise each would wait for the other
        if other.wants_memory and other.wants_memory <= crowd.free_bytes:
            return None, f"{title} waits for memory"
        return _shift_against(other, tenant, crowd, options, now_ns)

    def _settle(self, crowd: Crowd, options: Options, now_ns: int) -> None:
        """Send step limits and leases; memory is taken from some before it is lent to others."""
        within = crowd.within
        claims = [tenant.claim(now_ns, options) for tenant in within]
        lent = dict(zip(map(id, within), lend(claims, crowd.free_bytes), strict=True))
        leases = [(tenant, tenant.held_bytes + lent.get(id(tenant), 0)) for tenant in crowd.tenants]
        leases.sort(key=lambda pair: pair[1] - pair[0].process.lease_bytes)
        for tenant, lease_bytes in leases:
            self._lend(tenant, lease_bytes)
            self._show(tenant)
        if len(within) > 1 or any(tenant.wants_memory for tenant in within):
            self._wake(now_ns + LOOK_NS)

    def _lend(self, tenant: Tenant, lease_bytes: int) -> None:
        process = tenant.process
        if process.lease_bytes == lease_bytes:
            return
        self.has_lent_more |= lease_bytes > process.lease_bytes and tenant.wants_memory > 0
        before, process.lease_bytes = process.bound_bytes, lease_bytes
        bound_bytes = process.bound_bytes
        if bound_bytes != before:
            told = SetMemoryLease(process_id=process.process_id, lease_bytes=bound_bytes)
            self._actions.append(told)

    def _show(self, tenant: Tenant) -> None:
        """Tell the group and the process whether the process may begin another iteration."""
        is_kept = not tenant.is_within
        if tenant.group.is_kept is not is_kept:
            tenant.group.is_kept = is_kept
            self.moved.append(tenant.group)
        steps = tenant.ends_allowed if tenant.marks else min(1, tenant.ends_allowed)
        if tenant.steps_told != steps:
            tenant.steps_told = steps
            self._actions.append(SetStepLimit(process_id=tenant.process.process_id, steps=steps))

    def _wake(self, at_ns: int) -> None:
        self.wake_at_ns = at_ns if self.wake_at_ns is None else min(self.wake_at_ns, at_ns)


def _fits(crowd: Crowd, now_ns: int, options: Options) -> bool:
    """Tell whether all peaks fit together, or there is nobody to share with."""
    if len(crowd.tenants) < 2:
        return True
    if any(tenant.is_new(now_ns, options) for tenant in crowd.tenants):
        return False
    return sum(tenant.most_bytes for tenant in crowd.tenants) <= crowd.budget_bytes


def _let_on(standing: list[Tenant], crowd: Crowd, options: Options, now_ns: int) -> None:
    """Let one process go on that is in the way, and remove it from `standing`."""
    in_the_way = _in_the_way(standing, crowd, options, now_ns)
    if in_the_way is not None:
        for tenant in crowd.within:
            tenant.gave_way = True
        in_the_way.begin()
        standing.remove(in_the_way)


def _in_the_way(
    standing: list[Tenant], crowd: Crowd, options: Options, now_ns: int
) -> Tenant | None:
    """Return who has to go on so that somebody can end an iteration; None: nobody has to.

    By the banker's rule (leases.py), if none of those within could take all that it needs, all
    would wait. If one of them is new, its needs are not known; a process that stands where it
    holds least need not go on for its sake.
    """

    def can_end(tenant: Tenant) -> bool:
        return tenant.claim(now_ns, options).can_end(crowd.free_bytes)

    within = crowd.within
    if not within or any(map(can_end, within)):
        return None
    for_new = any(tenant.is_new(now_ns, options) for tenant in within)
    high = (t for t in standing if t.will_give_back and not (for_new and t.is_low))
    return next(filter(can_end, high), None)


def _shift_against(
    other: Tenant, tenant: Tenant, crowd: Crowd, options: Options, now_ns: int
) -> tuple[int | None, str]:
    """Return the shift against `other`, within what the processes at rest leave to the two."""
    resting = (t.held_bytes for t in crowd.tenants if t is not tenant and t is not other)
    room_bytes = crowd.budget_bytes - sum(resting)
    title = other.group.title
    if other.is_new(now_ns, options) or other.is_quiet(now_ns, options):
        fits = tenant.most_bytes + other.held_bytes <= room_bytes and not other.wants_memory
        return (0, "") if fits else (None, f"{title} does not end its iterations")
    running = [(other.curve(options), other.done_ns(options))]
    shift_ns = smallest_shift(
        running,
        tenant.curve(options),
        room_bytes,
        progress_ns=tenant.submitted_ns,
        held_bytes=tenant.held_bytes,
    )
    if shift_ns is None:
        return None, f"{title} has to end its iteration first: no shift makes them fit"
    return shift_ns, f"{title} has to do {shift_ns / 1e6:.1f} ms more of its work first"
