"""The scheduler against a model of the world it schedules.

The model obeys the gates, lets processes compute only behind open ones, drains the work of held
ones, and remembers who was served and how long each was held. Invariants alone would let a dead job
hold the GPU.
"""

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from tandemd.core.events import (
    CloseGates,
    ForgetProcess,
    GpuAdded,
    HandleShared,
    JobCancelled,
    JobPaused,
    JobResumed,
    JobUpdated,
    OpenGates,
    PolicyChanged,
    ProcessAttached,
    ProcessExited,
    SignalJob,
    UsageSampled,
)
from tandemd.core.model import JobClass, JobSpec, Options, Usage, WaitReason
from tandemd.core.policies.priority import Priority
from tandemd.core.policy import POLICIES
from tandemd.core.scheduler import Scheduler

MS = 1_000_000
QUANTUM_NS = 5 * MS
MAX_HOLD_NS = 150 * MS
ALL_THAT_CAN_BE_SAID = 0.99  # a little is left to those without a share
SETTLED_LOOKS = 4  # looks after which the past has no effect


@dataclass
class Worker:
    """A process as it really is, not as the scheduler sees it."""

    process_id: int
    job_id: int
    group: str
    gpu: int
    job_class: JobClass
    said_percent: int = 0  # its requested share of the time
    more_gpus: set[int] = field(default_factory=set)
    is_open: bool = True
    wants: bool = False
    busy: bool = False
    drains: bool = False  # held, with its last work on the GPU for one more look
    served_ns: int = 0
    held_ns: int = 0  # how long without a break it wanted the GPU behind a closed gate

    @property
    def gpus(self) -> set[int]:
        return {self.gpu, *self.more_gpus}

    def usage(self) -> Usage:
        held = self.wants and not self.busy
        return Usage(
            process_id=self.process_id,
            busy=self.busy,
            waiting_threads=int(held),
            wait_reason=WaitReason.GATE if held else WaitReason.NONE,
            exclusive_ns=self.served_ns,
        )


@dataclass
class World:
    policy: str = "priority"
    workers: dict[int, Worker] = field(default_factory=dict)
    paused_jobs: set[int] = field(default_factory=set)
    doomed: dict[int, int] = field(default_factory=dict)  # job -> when it gets SIGKILL
    killed: set[int] = field(default_factory=set)
    shared: dict[int, set[int]] = field(default_factory=dict)  # key -> processes
    joined: dict[str, str] = field(default_factory=dict)  # group -> the one that it became part of
    calm_looks: int = 0  # looks since anything but time changed

    def paused(self, worker: Worker) -> bool:
        members = [w for w in self.workers.values() if w.group == worker.group]
        return any(w.job_id in self.paused_jobs for w in members)

    def class_of(self, group: str) -> JobClass:
        return min(w.job_class for w in self.workers.values() if w.group == group)

    def share(self, process: int, key: int) -> None:
        """Groups that share something become one, under any of their names."""
        having = self.shared.setdefault(key, set())
        having.add(process)
        groups = {self.workers[p].group for p in having if p in self.workers}
        name = min(groups)
        self.joined = {old: name if new in groups else new for old, new in self.joined.items()}
        self.joined |= dict.fromkeys(groups, name)
        for worker in self.workers.values():
            worker.group = name if worker.group in groups else worker.group

    def home_of(self, group: str) -> str:
        """Return the group that it was merged into, as long as that one has processes."""
        home = self.joined.get(group, group)
        lives = any(worker.group == home for worker in self.workers.values())
        return home if lives else group

    def islands(self) -> list[list[Worker]]:
        """Return sets of workers tied together by GPUs and groups."""
        islands: list[list[Worker]] = []
        for worker in self.workers.values():
            mine = [
                i
                for i in islands
                if any(o.gpus & worker.gpus or o.group == worker.group for o in i)
            ]
            islands = [i for i in islands if i not in mine]
            islands.append([worker, *(o for i in mine for o in i)])
        return islands


class Sharing(RuleBasedStateMachine):
    processes = Bundle("processes")

    def __init__(self):
        super().__init__()
        self.options = Options(quantum_ns=QUANTUM_NS, max_hold_ns=MAX_HOLD_NS, min_share=0)
        self.core = Scheduler(self.options)
        self.world = World()
        self.now_ns = 0
        self.numbers = 0

    def tell(self, event):
        for action in self.core.handle(event):
            match action:
                case OpenGates(process_ids=process_ids) | CloseGates(process_ids=process_ids):
                    for p in process_ids:
                        self.world.workers[p].is_open = isinstance(action, OpenGates)
                case SignalJob(job_id=job, signal="KILL"):
                    assert self.world.doomed[job] <= self.now_ns, "before its grace was over"
                    self.world.killed.add(job)
                case ForgetProcess(process_id=p):
                    del self.world.workers[p]
        self.world.calm_looks = 0

    def look(self):
        """Passes a millisecond: those who may and want to compute do, and the rest drain."""
        self.now_ns += MS
        world = self.world
        for worker in world.workers.values():
            worker.drains = worker.busy and not worker.is_open and not worker.drains
            worker.busy = worker.drains or (worker.wants and worker.is_open)
        for gpu in (0, 1):
            runners = [w for w in world.workers.values() if w.busy and w.gpu == gpu]
            for worker in runners:
                worker.served_ns += MS // len(runners)
        for worker in world.workers.values():
            waits = worker.wants and not worker.is_open and not world.paused(worker)
            worker.held_ns = worker.held_ns + MS if waits else 0
        calm = world.calm_looks
        samples = tuple(worker.usage() for worker in world.workers.values())
        self.tell(UsageSampled(now_ns=self.now_ns, samples=samples))
        world.calm_looks = calm + 1
        due = {job for job, at_ns in world.doomed.items() if at_ns <= self.now_ns}
        assert world.killed == due, "SIGKILL comes when the grace is over, to nobody else"

    @rule(
        target=processes,
        job_class=st.sampled_from(JobClass),
        group=st.sampled_from(["", "", "ranks"]),
        gpu=st.sampled_from([0, 0, 1]),
        wants=st.sampled_from([True, True, False]),
        said=st.sampled_from([0, 0, 20, 60]),
    )
    def attach(self, job_class, group, gpu, wants, said):
        self.numbers += 1
        number = self.numbers
        self.world.workers[number] = Worker(
            process_id=number,
            job_id=number,
            group=self.world.home_of(group or f"own {number}"),
            gpu=gpu,
            job_class=job_class,
            said_percent=said,
            wants=wants,
        )
        spec = JobSpec(job_class=job_class, group=group, sm_percent=said)
        self.tell(
            ProcessAttached(
                now_ns=self.now_ns, process_id=number, job_id=number, uid=1, gpu=gpu, spec=spec
            )
        )
        return number

    @rule(process=processes, key=st.sampled_from([1, 2, 3]))
    def share(self, process, key):
        self.world.share(process, key)
        self.tell(HandleShared(now_ns=self.now_ns, process_id=process, key=key))

    @rule(process=processes, gpu=st.sampled_from([0, 1]))
    def use_another_gpu(self, process, gpu):
        self.world.workers[process].more_gpus.add(gpu)
        self.tell(GpuAdded(now_ns=self.now_ns, process_id=process, gpu=gpu))

    @rule(process=consumes(processes))
    def leave(self, process):
        self.world.paused_jobs.discard(process)
        self.world.doomed.pop(process, None)
        self.world.killed.discard(process)
        self.tell(ProcessExited(now_ns=self.now_ns, process_id=process))

    @rule(process=processes, wants=st.booleans())
    def change_its_mind(self, process, wants):
        self.world.workers[process].wants = wants
        self.world.calm_looks = 0

    @rule(process=processes, job_class=st.sampled_from(JobClass))
    def change_class(self, process, job_class):
        worker = self.world.workers[process]
        worker.job_class = job_class
        spec = JobSpec(job_class=job_class, sm_percent=worker.said_percent)
        self.tell(JobUpdated(now_ns=self.now_ns, job_id=process, spec=spec))

    @rule(process=processes)
    def pause(self, process):
        self.world.paused_jobs.add(process)
        self.tell(JobPaused(now_ns=self.now_ns, job_id=process))

    @rule(process=processes)
    def resume(self, process):
        self.world.paused_jobs.discard(process)
        self.tell(JobResumed(now_ns=self.now_ns, job_id=process))

    @rule(process=processes, grace_looks=st.sampled_from([0, 1, 20]))
    def cancel(self, process, grace_looks):
        """Cancels the job of a process that ignores signals."""
        if grace_looks:
            self.world.paused_jobs.discard(process)
            self.world.killed.discard(process)
        grace_ns = grace_looks * MS
        self.world.doomed[process] = self.now_ns + grace_ns
        event = JobCancelled(now_ns=self.now_ns, job_id=process, signal="TERM", grace_ns=grace_ns)
        self.tell(event)

    @rule(name=st.sampled_from(sorted(POLICIES)))
    def change_policy(self, name):
        self.world.policy = name
        self.tell(PolicyChanged(now_ns=self.now_ns, policy=name))

    @rule(looks=st.sampled_from([1, 5, 20, 200]))
    def time_passes(self, looks):
        for _ in range(looks):
            self.look()
            self.check_settled()
            self.check_holds()

    @rule()
    def equals_get_equal_service(self):
        """Processes that always want the GPU get their shares, and equal parts of the rest."""
        for _ in range(SETTLED_LOOKS):
            self.look()
        before = {p: w.served_ns for p, w in self.world.workers.items()}
        for _ in range(120):
            self.look()
        if not POLICIES[self.world.policy].by_weight:
            return
        for island in self.world.islands():
            self.check_fair(island, before)

    def check_fair(self, island, before):
        world = self.world
        alone = [w for w in island if w.wants and not world.paused(w)]
        if any(o.group == w.group and o is not w for w in alone for o in island):
            return  # a group shares its served time among its processes
        classes = {w.job_class for w in alone}
        if JobClass.LATENCY in classes or len(classes) != 1 or len(alone) < 2:
            return
        gains = {w.process_id: w.served_ns - before[w.process_id] for w in alone}
        # A quantum, what runs on until a hand-over is noticed, and a newcomer's credit.
        slack_ns = 2 * (QUANTUM_NS + 2 * MS) + 2 * QUANTUM_NS
        silent = [gains[w.process_id] for w in alone if not w.said_percent] or [0]
        assert max(silent) - min(silent) <= slack_ns, gains
        said = sum(w.said_percent for w in island)
        for worker in alone:
            owed = worker.said_percent / max(100, said / ALL_THAT_CAN_BE_SAID)
            got_ns = gains[worker.process_id]
            assert got_ns >= owed * sum(gains.values()) - slack_ns, (worker, gains)

    def check_holds(self):
        world = self.world
        rivals = len({w.group for w in world.workers.values()})
        bound_ns = MAX_HOLD_NS + rivals * (QUANTUM_NS + 4 * MS)
        for worker in world.workers.values():
            assert worker.held_ns <= bound_ns, f"{worker} is held longer than max_hold"

    def check_settled(self):
        """Somebody runs if and only if somebody wants to, and only one group at a time."""
        if self.world.calm_looks < SETTLED_LOOKS:
            return
        for island in self.world.islands():
            running = [w for w in island if w.busy]
            groups = {w.group for w in running if not self.is_exempt(w)}
            assert len(groups) <= 1, f"{groups} compute at the same time"
        if self.world.calm_looks % 8 == 0:
            self.note_progress()

    def note_progress(self):
        """Somebody computes within any three looks: a hand-over takes two."""
        before = sum(w.served_ns for w in self.world.workers.values())
        wanting = [w for w in self.world.workers.values() if w.wants]
        wanting = [w for w in wanting if not self.world.paused(w)]
        calm = self.world.calm_looks
        for _ in range(3):
            self.look()
        after = sum(w.served_ns for w in self.world.workers.values())
        assert (after > before) == bool(wanting), "the GPU idles while somebody wants it"
        self.world.calm_looks = calm + 3

    def is_exempt(self, worker):
        is_latency = self.world.class_of(worker.group) is JobClass.LATENCY
        return isinstance(POLICIES[self.world.policy], Priority) and is_latency

    @invariant()
    def the_scheduler_agrees_with_itself(self):
        self.core.check_invariants()

    @invariant()
    def no_group_is_split(self):
        for worker in self.world.workers.values():
            gates = {o.is_open for o in self.world.workers.values() if o.group == worker.group}
            assert len(gates) == 1

    @invariant()
    def latency_is_never_held(self):
        for worker in self.world.workers.values():
            if self.is_exempt(worker) and not self.world.paused(worker):
                assert worker.is_open

    @invariant()
    def paused_jobs_are_held(self):
        for worker in self.world.workers.values():
            assert not (self.world.paused(worker) and worker.is_open)


TestSharing = Sharing.TestCase
TestSharing.settings = settings(max_examples=60, stateful_step_count=30)
