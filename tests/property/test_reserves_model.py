"""Whatever jobs do, the reserve stays free, and no more than the reserve."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tandemd.core.events import (
    CeilingSet,
    JobUpdated,
    MemoryAudited,
    ProcessAttached,
    ProcessExited,
    SetMemoryLease,
    SetMemoryLimit,
    UsageSampled,
)
from tandemd.core.memory.ceilings import Ceiling
from tandemd.core.memory.reserves import Reserve
from tandemd.core.model import NO_LIMIT, JobSpec, Options, Usage
from tandemd.core.scheduler import Scheduler

GIB = 1 << 30
TOTAL = 16 * GIB
MS = 1_000_000


class Jobs(RuleBasedStateMachine):
    """Honest processes that keep within what they were told, against the model's own sums."""

    @initialize(reserve_gib=st.integers(0, 8))
    def begin(self, reserve_gib):
        self.core, self.now_ns, self.numbers = Scheduler(Options()), 1_000 * MS, 0
        self.usages, self.unseen, self.limits, self.leases = {}, {}, {}, {}
        self.keep(reserve_gib)
        for uid in (1, 1, 2):
            self.attach(uid=uid, limit_gib=0, moves=uid == 2)

    def hear(self, actions):
        for action in actions:
            if isinstance(action, SetMemoryLimit):
                self.limits[action.process_id] = action.limit_bytes
            elif isinstance(action, SetMemoryLease):
                self.leases[action.process_id] = action.lease_bytes
        self.core.check_invariants()

    def say(self, event):
        self.now_ns += MS
        self.hear(self.core.handle(event))

    @rule(gib=st.integers(0, 8))
    def keep(self, gib):
        """The configuration is read again."""
        self.reserve_bytes = gib * GIB
        line = self.core.memory.line
        line.capacity_bytes = {0: TOTAL - gib * GIB}
        line.reserves.put({0: Reserve(size_bytes=gib * GIB)} if gib else {})
        self.hear(self.core.change_options(self.core.options, now_ns=self.now_ns))
        self.has_grown_otherwise = True

    @rule(uid=st.integers(1, 2), limit_gib=st.sampled_from([0, 0, 3]), moves=st.booleans())
    def attach(self, uid, limit_gib, moves):
        self.numbers += 1
        number = self.numbers
        self.usages[number], self.unseen[number] = Usage(process_id=number), 0
        memory_bytes = limit_gib * GIB or NO_LIMIT
        spec = JobSpec(memory_bytes=memory_bytes, swappable=moves)
        self.say(
            ProcessAttached(
                now_ns=self.now_ns, process_id=number, job_id=number, uid=uid, gpu=0, spec=spec
            )
        )

    def one(self, which):
        living = list(self.usages)
        return living[which % len(living)] if living else None

    @rule(asked=st.lists(st.tuples(st.integers(0, 7), st.integers(1, 4)), min_size=3, max_size=8))
    def allocate(self, asked):
        for which, gib in asked:
            if (number := self.one(which)) is not None:
                self.allocates(number, gib)

    def allocates(self, number, gib):
        """Allocates as a shim does: checks its limits, and reports the result to the daemon."""
        usage, size_bytes = self.usages[number], gib * GIB
        wanted_bytes = usage.device_bytes + size_bytes
        may = wanted_bytes <= min(self.limits[number], self.leases.get(number, NO_LIMIT))
        fits = self.held_bytes + size_bytes + self.reserve_bytes <= TOTAL
        assert fits or not may or not self.reserve_bytes
        own = self.core.jobs[number]
        user = self.core.memory.line.ceilings.of(own.uid).of(TOTAL)
        others = sum(
            u.device_bytes for n, u in self.usages.items() if self.core.jobs[n].uid == own.uid
        )
        is_limited = wanted_bytes > own.spec.memory_bytes or others + size_bytes > user
        assert may == ((fits or not self.reserve_bytes) and not is_limited)
        if may and self.held_bytes + size_bytes <= TOTAL:
            self.takes(number, device_bytes=wanted_bytes)

    @rule(which=st.integers(0, 7), gib=st.integers(1, 6))
    def free(self, which, gib):
        if (number := self.one(which)) is not None:
            usage = self.usages[number]
            here_bytes = usage.device_bytes - usage.swapped_bytes
            self.takes(number, device_bytes=usage.device_bytes - min(here_bytes, gib * GIB))

    @rule(which=st.integers(0, 7), part=st.sampled_from([0, 1, 2]))
    def move(self, which, part):
        """Moves none, half or all of the process's memory to the host."""
        number = self.one(which)
        if number is None or not self.core.jobs[number].spec.swappable:
            return
        usage = self.usages[number]
        self.has_grown_otherwise |= part < 2
        self.takes(
            number,
            device_bytes=usage.device_bytes,
            swappable_bytes=usage.device_bytes,
            swapped_bytes=usage.device_bytes * part // 2,
        )

    def takes(self, number, **said):
        usage = Usage(process_id=number, **said)
        if "swapped_bytes" not in said:
            before = self.usages[number]
            usage = Usage(
                process_id=number,
                swappable_bytes=min(before.swappable_bytes, said["device_bytes"]),
                swapped_bytes=min(before.swapped_bytes, said["device_bytes"]),
                **said,
            )
        self.usages[number] = usage
        self.say(UsageSampled(now_ns=self.now_ns, samples=(usage,)))

    @rule(which=st.integers(0, 7), mib=st.sampled_from([0, 1024, 2048]))
    def audit(self, which, mib):
        """The driver reports that the process also has a context."""
        if (number := self.one(which)) is None:
            return
        self.has_grown_otherwise |= mib << 20 > self.unseen[number]
        self.unseen[number] = mib << 20
        held = ((number, (self.usages[number].resident_bytes + (mib << 20),)),)
        for _ in range(3):
            self.say(MemoryAudited(now_ns=self.now_ns, held_bytes=held, is_complete=True))

    @rule(which=st.integers(0, 7))
    def leave(self, which):
        if (number := self.one(which)) is not None:
            for known in (self.usages, self.unseen, self.limits, self.leases):
                known.pop(number, None)
            self.say(ProcessExited(now_ns=self.now_ns, process_id=number))

    @rule(which=st.integers(0, 7), gib=st.sampled_from([0, 2, 9]))
    def set_limit(self, which, gib):
        if (number := self.one(which)) is not None:
            swappable = self.core.jobs[number].spec.swappable
            spec = JobSpec(memory_bytes=gib * GIB or NO_LIMIT, swappable=swappable)
            self.say(JobUpdated(now_ns=self.now_ns, job_id=number, spec=spec))

    @rule(uid=st.integers(1, 2), gib=st.sampled_from([0, 5]))
    def set_ceiling(self, uid, gib):
        ceiling = Ceiling(size_bytes=gib * GIB, key="k")
        self.say(CeilingSet(now_ns=self.now_ns, uid=uid, ceiling=ceiling))

    @property
    def held_bytes(self):
        return sum(
            usage.resident_bytes + self.unseen[number] for number, usage in self.usages.items()
        )

    @invariant()
    def what_is_kept_free_is_free(self):
        """If it was taken before, or not by an allocation, then nobody may add to that."""
        if not self.reserve_bytes or self.held_bytes + self.reserve_bytes <= TOTAL:
            self.has_grown_otherwise = False
        else:
            assert self.has_grown_otherwise

    @invariant()
    def what_a_process_has_stays_usable(self):
        for number, usage in self.usages.items():
            assert self.leases.get(number, NO_LIMIT) >= usage.device_bytes


TestJobs = Jobs.TestCase
TestJobs.settings = settings(max_examples=60, stateful_step_count=40)
