"""Energy against a model of the GPUs: none is lost, and none goes to a job that did not run."""

from collections import Counter, defaultdict
from fractions import Fraction

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tandemd.core.events import ProcessAttached, ProcessExited, UsageSampled
from tandemd.core.model import JobSpec, Usage
from tandemd.core.scheduler import Scheduler

GPUS, JOBS = (0, 1), range(1, 5)
IDLE_W, BUSY_W = 70, 700  # watts, which are mJ per ms
MS = 1_000_000

gpus = st.sampled_from(GPUS)
times_ms = st.integers(1, 3000)


class Energy(RuleBasedStateMachine):
    """Jobs run alone or side by side, come and end; counters are read now and then."""

    def __init__(self):
        super().__init__()
        self.core = Scheduler()
        self.now_ns = 0
        self.usages = {}  # by job and GPU: of the living process
        self.counted_mj = Counter()  # by the drivers
        self.read_at = {}  # by GPU: when it was read, and the count then
        self.ran_ns = defaultdict(Counter)  # by GPU: each job's time since then
        self.expected_mj = defaultdict(Fraction)  # exactly
        self.taken_mj = Counter()  # by GPU, between readings
        self.readings = 0
        self.seen_mj = Counter()

    @rule(gpu=gpus, job=st.sampled_from(JOBS))
    def comes(self, gpu, job):
        if (job, gpu) not in self.usages:
            process_id = 10 * job + gpu
            self.usages[job, gpu] = Usage(process_id=process_id)
            self.core.handle(
                ProcessAttached(
                    now_ns=self.now_ns,
                    process_id=process_id,
                    job_id=job,
                    uid=1,
                    gpu=gpu,
                    spec=JobSpec(),
                )
            )

    @rule(gpu=gpus, busy_ms=times_ms, idle_ms=st.integers(0, 3000), choice=st.randoms())
    def some_run_and_then_nobody(self, gpu, busy_ms, idle_ms, choice):
        """Jobs that run side by side are charged equal parts."""
        those = [job for job, where in self.usages if where == gpu]
        running = choice.sample(those, choice.randint(0, len(those)))
        for job in running:
            part_ns = busy_ms * MS // len(running)
            self._charge(job, gpu, part_ns, is_alone=len(running) == 1)
        self.counted_mj[gpu] += busy_ms * (BUSY_W if running else IDLE_W) + idle_ms * IDLE_W
        self.counted_mj[1 - gpu] += (busy_ms + idle_ms) * IDLE_W
        self.now_ns += (busy_ms + idle_ms) * MS

    def _charge(self, job, gpu, part_ns, *, is_alone):
        before = self.usages[job, gpu]
        usage = Usage(
            process_id=before.process_id,
            exclusive_ns=before.exclusive_ns + part_ns * is_alone,
            shared_ns=before.shared_ns + part_ns * (not is_alone),
        )
        self.usages[job, gpu] = usage
        self.core.handle(UsageSampled(now_ns=self.now_ns, samples=(usage,)))
        if gpu in self.read_at:
            self.ran_ns[gpu][job] += part_ns

    @rule(read=st.sets(gpus))
    def is_read(self, read):
        """The driver reports nothing for the other GPUs this time."""
        self.core.energy.read({gpu: self.counted_mj[gpu] for gpu in read}, self.now_ns)
        self.readings += len(read)
        for gpu in read:
            then_ns, counted_mj = self.read_at.get(gpu, (self.now_ns, self.counted_mj[gpu]))
            spent_mj = max(0, self.counted_mj[gpu] - counted_mj)
            self.taken_mj[gpu] += spent_mj
            for job, ran_ns in self.ran_ns.pop(gpu, {}).items():
                self.expected_mj[job] += Fraction(spent_mj * ran_ns, self.now_ns - then_ns)
            self.read_at[gpu] = self.now_ns, self.counted_mj[gpu]

    @rule(gpu=gpus)
    def driver_is_loaded_anew(self, gpu):
        self.counted_mj[gpu] = 0

    @rule(gpu=gpus, job=st.sampled_from(JOBS))
    def goes(self, gpu, job):
        if (job, gpu) in self.usages:
            process_id = self.usages.pop((job, gpu)).process_id
            self.core.handle(ProcessExited(now_ns=self.now_ns, process_id=process_id))

    @invariant()
    def nothing_is_lost(self):
        energy = self.core.energy
        metered = [energy.of_gpu(gpu) for gpu in self.read_at]
        assert [one.total_mj for one in metered] == [self.taken_mj[gpu] for gpu in self.read_at]
        of_jobs_mj = sum(energy.of_job(job) or 0 for job in JOBS)
        nobodys_mj = sum(one.unattributed_mj for one in metered)
        assert of_jobs_mj + nobodys_mj == self.taken_mj.total()

    @invariant()
    def who_ran_gets_his_part_and_nobody_else(self):
        for job in JOBS:
            found_mj = self.core.energy.of_job(job)
            assert (found_mj is None) is (job not in self.expected_mj)
            if found_mj is not None:  # each reading's remainder is nobody's
                exactly_mj = self.expected_mj[job]
                assert exactly_mj - self.readings <= found_mj <= exactly_mj

    @invariant()
    def nothing_goes_back(self):
        for job in JOBS:
            now_mj = self.core.energy.of_job(job) or 0
            assert now_mj >= self.seen_mj[job]
            self.seen_mj[job] = now_mj


TestEnergy = Energy.TestCase
TestEnergy.settings = settings(max_examples=60, stateful_step_count=40)
