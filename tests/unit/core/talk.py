"""Conversations with the scheduler: short names for events in and for actions out."""

from dataclasses import dataclass, field

from tandemd.core.events import (
    Action,
    CloseGates,
    GpuAdded,
    HandleShared,
    JobCancelled,
    JobExited,
    JobPaused,
    JobRegistered,
    JobResumed,
    JobUpdated,
    MemoryAudited,
    OpenGates,
    PolicyChanged,
    PoolCopied,
    PoolMade,
    PoolRefused,
    ProcessAttached,
    ProcessExited,
    ProcessMapped,
    Ticked,
    UsageSampled,
    WakeAt,
)
from tandemd.core.model import JobClass, JobSpec, Options, Usage, WaitReason
from tandemd.core.scheduler import Scheduler

MS = 1_000_000
LATENCY, NORMAL, BATCH = JobClass.LATENCY, JobClass.NORMAL, JobClass.BATCH


@dataclass
class Talk:
    """A scheduler and a clock that moves only when told to."""

    options: Options = field(default_factory=Options)
    now_ns: int = 1_000 * MS

    def __post_init__(self):
        self.core = Scheduler(self.options)
        self.usages = {}
        self.actions: list[Action] = []

    def say(self, event) -> list[Action]:
        self.actions = self.core.handle(event)
        self.core.check_invariants()
        return self.actions

    def register(self, job_id, job_class=NORMAL, uid=1000, meant_gpus=(), **spec):
        spec = JobSpec(job_class=job_class, **spec)
        return self.say(
            JobRegistered(
                now_ns=self.now_ns,
                job_id=job_id,
                uid=uid,
                spec=spec,
                meant_gpus=frozenset(meant_gpus),
            )
        )

    def attach(
        self, process_id, job_class=NORMAL, *, job_id=None, uid=1000, gpu=0, cancel=None, **spec
    ):
        self.usages[process_id] = Usage(process_id=process_id)
        return self.say(
            ProcessAttached(
                now_ns=self.now_ns,
                process_id=process_id,
                job_id=process_id if job_id is None else job_id,
                uid=uid,
                gpu=gpu,
                spec=JobSpec(job_class=job_class, **spec),
                takes_files=True,
                gives_back=True,
                cancel=cancel,
            )
        )

    def map(self, process_id):
        return self.say(ProcessMapped(now_ns=self.now_ns, process_id=process_id))

    def leave(self, process_id):
        del self.usages[process_id]
        return self.say(ProcessExited(now_ns=self.now_ns, process_id=process_id))

    def share(self, process_id, *, key):
        return self.say(HandleShared(now_ns=self.now_ns, process_id=process_id, key=key))

    def copied(self, process_id, pool, why_not=""):
        return self.say(
            PoolCopied(now_ns=self.now_ns, process_id=process_id, pool=pool, why_not=why_not)
        )

    def made(self, process_id, *, size_bytes, took_ns):
        """The process made the host memory that came with an order."""
        return self.say(
            PoolMade(
                now_ns=self.now_ns, process_id=process_id, size_bytes=size_bytes, took_ns=took_ns
            )
        )

    def refuse(self, process_id, pool):
        """The host did not have the memory that was to come with that order."""
        return self.say(PoolRefused(now_ns=self.now_ns, process_id=process_id, pool=pool))

    def audit(self, *, after_ms=5000, is_complete=True, claims=(), **held_bytes):
        """The driver reports what processes hold: `p1=(...)` for process 1, one figure per GPU."""
        self.now_ns += after_ms * MS
        held = tuple((int(name[1:]), sizes) for name, sizes in held_bytes.items())
        event = MemoryAudited(
            now_ns=self.now_ns,
            held_bytes=held,
            is_complete=is_complete,
            claims=dict(claims),
        )
        return self.say(event)

    def add_gpu(self, process_id, gpu):
        return self.say(GpuAdded(now_ns=self.now_ns, process_id=process_id, gpu=gpu))

    def end(self, job_id):
        return self.say(JobExited(now_ns=self.now_ns, job_id=job_id))

    def pause(self, job_id):
        return self.say(JobPaused(now_ns=self.now_ns, job_id=job_id))

    def resume(self, job_id):
        return self.say(JobResumed(now_ns=self.now_ns, job_id=job_id))

    def cancel(self, job_id, *, signal="TERM", grace_ms):
        grace_ns = int(grace_ms * MS)
        return self.say(
            JobCancelled(now_ns=self.now_ns, job_id=job_id, signal=signal, grace_ns=grace_ns)
        )

    def update(self, job_id, **spec):
        return self.say(JobUpdated(now_ns=self.now_ns, job_id=job_id, spec=JobSpec(**spec)))

    def policy(self, name):
        return self.say(PolicyChanged(now_ns=self.now_ns, policy=name))

    def tick(self, after_ms=0.0):
        self.now_ns += int(after_ms * MS)
        return self.say(Ticked(now_ns=self.now_ns))

    def sample(self, *processes, after_ms=0.0, **figures):
        """Give each of the processes the same new figures."""
        self.now_ns += int(after_ms * MS)
        for process_id in processes:
            old = self.usages[process_id]
            kept = {name: getattr(old, name) for name in old.__slots__}
            self.usages[process_id] = Usage(**(kept | figures))
        samples = tuple(self.usages[process_id] for process_id in processes)
        return self.say(UsageSampled(now_ns=self.now_ns, samples=samples))

    def works(self, *processes, after_ms=0.0, ran_ms=0.0):
        """The processes have work on the GPU; each got `ran_ms` of GPU time since the last look."""
        for process_id in processes:
            done_ns = self.usages[process_id].exclusive_ns + int(ran_ms * MS)
            actions = self.sample(
                process_id,
                after_ms=after_ms,
                busy=True,
                waiting_threads=0,
                wait_reason=WaitReason.NONE,
                exclusive_ns=done_ns,
            )
            after_ms = 0.0
        return actions

    def waits(self, *processes, after_ms=0.0, reason=WaitReason.GATE):
        """One thread of each process waits, and none of their work is on the GPU."""
        return self.sample(
            *processes, after_ms=after_ms, busy=False, waiting_threads=1, wait_reason=reason
        )

    def rests(self, *processes, after_ms=0.0):
        """The processes have no work."""
        return self.sample(
            *processes,
            after_ms=after_ms,
            busy=False,
            waiting_threads=0,
            wait_reason=WaitReason.NONE,
        )

    def is_open(self, process_id) -> bool:
        job = self.core.jobs[self.core.processes[process_id].job_id]
        return self.core.groups[job.group_key].open

    def open_processes(self) -> set[int]:
        return {p for p in self.core.processes if self.is_open(p)}

    def of(self, kind, process_id=None) -> list[Action]:
        """Return the actions of one kind in the last answer."""
        return [
            action
            for action in self.actions
            if isinstance(action, kind) and (process_id is None or process_id in _whose(action))
        ]

    @property
    def gates(self) -> list[Action]:
        return [a for a in self.actions if isinstance(a, OpenGates | CloseGates)]

    @property
    def wake_at_ms(self) -> float:
        (wake,) = self.of(WakeAt)
        return (wake.at_ns - self.now_ns) / MS


def run(talk, contenders, duration_ms):
    """A GPU that gives each millisecond to an open process; returns the milliseconds each got."""
    got = dict.fromkeys(contenders, 0)
    on_gpu = None
    for _ in range(duration_ms):
        if on_gpu is not None and not talk.is_open(on_gpu):
            talk.waits(on_gpu, after_ms=1)  # the hand-over takes a millisecond
            on_gpu = None
            continue
        runner = next((p for p in contenders if talk.is_open(p)), None)
        for process_id in contenders:
            if process_id != runner:
                talk.waits(process_id)
        if runner is None:
            talk.tick(after_ms=1)
            continue
        talk.works(runner, after_ms=1, ran_ms=1)
        got[runner] += 1
        on_gpu = runner
    return got


def _whose(action: Action) -> tuple[int, ...]:
    one = (action.process_id,) if hasattr(action, "process_id") else ()
    return getattr(action, "process_ids", one)
