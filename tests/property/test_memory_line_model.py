"""The line for device memory, against a model of its GPUs.

The model's processes try only when they are told to, and take what fits. The model keeps its own
record of who came first. Nobody may overtake a process that could be served without them, nobody
may be refused while somebody could still help, and once those who compute give back what they hold,
nobody may be left waiting.
"""

from dataclasses import dataclass, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from tandemd.core.events import (
    CeilingSet,
    ProcessAttached,
    ProcessExited,
    SetMemoryPlace,
    Ticked,
    UsageSampled,
)
from tandemd.core.memory.ceilings import NONE, Ceiling
from tandemd.core.model import NO_LIMIT, JobSpec, MemoryWait, Options, Usage
from tandemd.core.scheduler import Scheduler

CAPACITY = 16  # bytes; the unit does not matter
LATER_NS = 2 * 10**9  # longer than the grace after an exit
PATIENCE_NS = 10**15


@dataclass
class Worker:
    """A process as it really is, not as the scheduler sees it."""

    process_id: int
    job_id: int
    gpu: int
    quota: int
    uid: int = 1
    holds: int = 0
    wants: int = 0
    came: int = 0  # its place among all requests
    ticket: int = 0
    tried: int = 0
    said_quota: bool = False  # at its last try
    told: SetMemoryPlace | None = None

    @property
    def waits(self) -> bool:
        return self.wants > 0


class Waiting(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.core = Scheduler(Options())
        self.core.memory.line.capacity_bytes = {0: CAPACITY, 1: CAPACITY}
        self.workers: dict[int, Worker] = {}
        self.ceilings = {1: NO_LIMIT, 2: NO_LIMIT}  # by uid, on each GPU
        self.now_ns = 0
        self.numbers = 0
        self.requests = 0

    def tell(self, event):
        for action in self.core.handle(event):
            if isinstance(action, SetMemoryPlace) and action.process_id in self.workers:
                self.workers[action.process_id].told = action
        self.core.check_invariants()

    def sample(self, worker):
        wait, worker.said_quota = None, not self.fits_limits(worker, worker.wants)
        if worker.waits:
            wait = MemoryWait(
                ticket=worker.ticket,
                size_bytes=worker.wants,
                is_quota=worker.said_quota,
                is_alone=True,
                tried_round=worker.tried,
            )
        usage = Usage(process_id=worker.process_id, device_bytes=worker.holds, memory_wait=wait)
        self.tell(UsageSampled(now_ns=self.now_ns, samples=(usage,)))

    def on(self, gpu):
        return [w for w in self.workers.values() if w.gpu == gpu]

    def of_job(self, job_id):
        return [w for w in self.workers.values() if w.job_id == job_id]

    def of_user(self, worker):
        return [w for w in self.on(worker.gpu) if w.uid == worker.uid]

    def lefts(self, worker):
        """Return what its job's limit leaves, and what its user's ceiling leaves, on its GPU."""
        siblings = [w for w in self.of_job(worker.job_id) if w.gpu == worker.gpu]
        return (
            worker.quota - sum(w.holds for w in siblings),
            self.ceilings[worker.uid] - sum(w.holds for w in self.of_user(worker)),
        )

    def fits_limits(self, worker, size):
        return size <= min(self.lefts(worker))

    def fits(self, worker, size):
        room = CAPACITY - sum(w.holds for w in self.on(worker.gpu))
        return size <= room and self.fits_limits(worker, size)

    def run(self):
        """Lets processes try that were told to, until nothing moves."""
        for _ in range(1000):
            able = [w for w in self.workers.values() if w.waits and self.has_news(w)]
            if not able:
                self.check_rest()
                return
            self.act(able[0])
        raise AssertionError("it never comes to rest")

    def check_rest(self):
        """A process that could be served waits for an earlier one: on its GPU, or of its job."""
        waiting = [w for w in self.workers.values() if w.waits]
        for worker in waiting:
            before = [w for w in waiting if w.came < worker.came]
            near = [w for w in before if w.gpu == worker.gpu or w.job_id == worker.job_id]
            assert near or not self.fits(worker, worker.wants), "it waits for nobody"

    def has_news(self, worker):
        told = worker.told
        if told is None or told.ticket != worker.ticket:
            return False
        return told.is_refused or told.round != worker.tried

    def act(self, worker):
        if worker.told.is_refused:
            self.check_refusal(worker)
            worker.wants = 0
        elif self.fits(worker, worker.wants):
            self.check_turn(worker)
            worker.holds, worker.wants = worker.holds + worker.wants, 0
        else:
            worker.tried = worker.told.round
        self.sample(worker)

    def check_turn(self, worker):
        """The first on its GPU is overtaken only if those who wait hold what it needs.

        A process that reported that a limit stops it is in nobody's way.
        """
        kept = sum(w.holds for w in self.on(worker.gpu) if w.waits)
        waiting = [w for w in self.on(worker.gpu) if w.waits and not w.said_quota]
        first = min(waiting, key=lambda w: w.came, default=worker)
        if first is not worker and first.came < worker.came:
            assert CAPACITY - kept < first.wants, "overtaken without need"

    def check_refusal(self, worker):
        if worker.wants > min(CAPACITY, worker.quota, self.ceilings[worker.uid]):
            return
        holders = self.on(worker.gpu)
        if not self.fits_limits(worker, worker.wants):
            of_job, of_user = self.lefts(worker)
            holders = self.of_user(worker) if of_user < of_job else self.of_job(worker.job_id)
        running = [w for w in holders if w.holds and not w.waits]
        assert not running, "refused although somebody may give memory back"
        assert not self.fits(worker, worker.wants), "refused although it fits"

    @rule(
        gpu=st.integers(0, 1),
        quota=st.sampled_from([NO_LIMIT, 6, 12]),
        beside=st.one_of(st.none(), st.integers(0, 5)),
        uid=st.integers(1, 2),
    )
    def attach(self, gpu, quota, beside, uid):
        if len(self.workers) >= 6:
            return
        self.numbers += 1
        number = self.numbers
        worker = Worker(process_id=number, job_id=number, gpu=gpu, quota=quota, uid=uid)
        if beside is not None and self.workers:
            first = list(self.workers.values())[beside % len(self.workers)]
            worker = replace(worker, job_id=first.job_id, quota=first.quota, uid=first.uid)
        self.workers[number] = worker
        spec = JobSpec(memory_bytes=worker.quota, wait_memory_ns=PATIENCE_NS)
        self.tell(
            ProcessAttached(
                now_ns=self.now_ns,
                process_id=number,
                job_id=worker.job_id,
                uid=worker.uid,
                gpu=gpu,
                spec=spec,
            )
        )

    @rule(
        uid=st.integers(1, 2),
        ceiling=st.sampled_from(
            [
                NONE,
                Ceiling(size_bytes=5),
                Ceiling(percent=70),
                Ceiling(percent=30, size_bytes=9),
            ]
        ),
    )
    def limit_user(self, uid, ceiling):
        self.ceilings[uid] = ceiling.of(CAPACITY)
        self.tell(CeilingSet(now_ns=self.now_ns, uid=uid, ceiling=ceiling))
        for worker in self.workers.values():  # each asks again under the new ceiling
            self.sample(worker)
        self.run()

    @precondition(lambda self: any(not w.waits for w in self.workers.values()))
    @rule(data=st.data(), size=st.integers(1, CAPACITY + 2))
    def allocate(self, data, size):
        able = [w for w in self.workers.values() if not w.waits]
        worker = data.draw(st.sampled_from(able))
        line_ahead = worker.told is not None and worker.told.line_ahead
        if self.fits(worker, size) and not line_ahead:
            worker.holds += size
        else:
            self.requests += 1
            worker.came, worker.wants = self.requests, size
            worker.ticket, worker.tried = worker.ticket + 1, 0
        self.sample(worker)
        self.run()

    @precondition(lambda self: any(w.holds and not w.waits for w in self.workers.values()))
    @rule(data=st.data())
    def free(self, data):
        able = [w for w in self.workers.values() if w.holds and not w.waits]
        worker = data.draw(st.sampled_from(able))
        worker.holds -= data.draw(st.integers(1, worker.holds))
        self.sample(worker)
        self.run()

    @precondition(lambda self: self.workers)
    @rule(data=st.data())
    def kill(self, data):
        number = data.draw(st.sampled_from(sorted(self.workers)))
        del self.workers[number]
        self.tell(ProcessExited(now_ns=self.now_ns, process_id=number))
        self.run()

    @rule()
    def time_passes(self):
        self.now_ns += LATER_NS
        self.tell(Ticked(now_ns=self.now_ns))
        self.run()

    def teardown(self):
        """Those who compute end at last; then nobody may be left waiting."""
        for _ in range(4 * len(self.workers) + 4):
            self.time_passes()
            for worker in self.workers.values():
                if worker.holds and not worker.waits:
                    worker.holds = 0
                    self.sample(worker)
                    self.run()
        left = [w.process_id for w in self.workers.values() if w.waits]
        assert not left, f"{left} wait for ever"


TestWaiting = Waiting.TestCase
TestWaiting.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)
