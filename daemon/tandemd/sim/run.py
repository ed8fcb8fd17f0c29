"""Plays a workload: the GPU, the programs and the daemon's rounds, on one virtual clock.

At each time the GPU's own events come first, then programs go on in order of their numbers, and
last the daemon makes a round, as on the virtual clock of the software GPU. Nothing here decides who
computes: that is what `Scheduler.handle` answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import assert_never

from tandem.errors import BugError
from tandemd.core.events import (
    Action,
    AnnounceJob,
    ChargeGroup,
    CheckpointProcess,
    CloseGates,
    CopyPool,
    DropFile,
    DropPool,
    Event,
    FindPlan,
    ForgetProcess,
    JobExited,
    JobRegistered,
    KeepTrials,
    MoveMemory,
    OfferFile,
    OpenGates,
    ProcessAttached,
    ProcessExited,
    ProcessMapped,
    RequestsServed,
    SetClass,
    SetHonourPresence,
    SetLane,
    SetLinger,
    SetMemoryLease,
    SetMemoryLimit,
    SetMemoryPlace,
    SetMemoryWait,
    SetPhaseLimit,
    SetPresence,
    SetSms,
    SetStepLimit,
    SetWindow,
    SignalJob,
    TakeBack,
    TellPause,
    Ticked,
    UsageSampled,
    WakeAt,
)
from tandemd.core.scheduler import Scheduler
from tandemd.core.tuner.pauses import has_requests
from tandemd.sim.machine import Engine, Memory, Stretch
from tandemd.sim.poller import PERIOD_NS, Poller
from tandemd.sim.process import Process
from tandemd.sim.programs import program_of
from tandemd.sim.workload import GPU, JobTable, Workload

START_NS = 1_000_000_000  # not 0, which the core takes for a time that is not known
STUCK_NS = 60_000_000_000  # time with no events but wake-ups that the core asked for
LOOK_NS = 100_000_000  # recent.STEP_NS: the daemon samples this often, with or without news
UID = 1000  # of all jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutcome:
    """What became of a job. Times are since the beginning of the simulation."""

    name: str
    arrival_ns: int
    ended_ns: int | None  # None: not before the simulation ended
    problem: str  # why it ended early; empty: it did not
    steps: int  # iterations
    gpu_ns: int  # its own computation
    charged_ns: int  # charged to it by the daemon
    held_ns: int  # waiting at its gate, or for a busy peer
    of_all_ns: int  # all computation on the GPU between its arrival and its end
    requests_ns: tuple[int, ...]  # of those answered: from the request to the answer
    slo_ns: int  # 0 = none


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a workload."""

    jobs: tuple[JobOutcome, ...]
    ended_ns: int  # when the last job ended, or the simulation
    switches: int  # of contexts
    is_stuck: bool  # no job could go on, and some had not ended
    stretches: tuple[Stretch, ...] = ()  # if requested; on the simulation's clock


def simulate(
    workload: Workload, *, until_ns: int | None = None, keep_stretches: bool = False
) -> Outcome:
    """Play a workload until all jobs have ended, or until `until_ns`."""
    simulation = Simulation(workload)
    if keep_stretches:
        simulation.engine.stretches = []
    simulation.run(until_ns)
    return simulation.outcome()


@dataclass(slots=True, kw_only=True)
class Run:
    """A job that has arrived."""

    job: JobTable
    process: Process
    worked_before_ns: int  # all computation on the GPU before its arrival
    ended_ns: int | None = None
    of_all_ns: int = 0
    charged_ns: int = 0


@dataclass(slots=True)
class Simulation:
    """One run."""

    workload: Workload
    engine: Engine = field(init=False)
    scheduler: Scheduler = field(init=False)
    poller: Poller = field(init=False, default_factory=Poller)
    processes: dict[int, Process] = field(init=False, default_factory=dict)  # the living ones
    is_stuck: bool = False
    _memory: Memory = field(init=False)
    _coming: list[JobTable] = field(init=False)
    _runs: dict[int, Run] = field(init=False, default_factory=dict)
    _wake_at_ns: int | None = None
    _round_ns: int = START_NS  # of the last round
    _look_at_ns: int = START_NS + LOOK_NS
    _moved_ns: int = START_NS  # the last event other than a wake-up of the core's
    _is_stirred: bool = False  # something happened since the last round
    _is_told: bool = False  # a process was told something since all went on last

    def __post_init__(self) -> None:
        gpu = self.workload.gpu
        self.engine = Engine(slice_ns=gpu.slice_ns, switch_ns=gpu.switch_ns)
        self.engine.now_ns = START_NS
        self._memory = Memory(gpu.memory_bytes)
        self.scheduler = Scheduler(self.workload.options)
        if gpu.memory_bytes:  # as NVML tells the daemon
            self.scheduler.memory.line.capacity_bytes = {GPU: gpu.memory_bytes}
        self._coming = sorted(self.workload.jobs, key=lambda job: job.arrival_ns)  # stable

    def run(self, until_ns: int | None) -> None:
        """Run until all have ended or none can go on, or until `until_ns`."""
        end_ns = None if until_ns is None else START_NS + until_ns
        while self._coming or self.processes:
            now_ns = self._next_ns()
            if self._is_left_alone and now_ns - self._moved_ns > self._patience_ns:
                self.is_stuck = True
                return
            if end_ns is not None and now_ns > end_ns:
                self._compute(end_ns)
                return
            self.play(now_ns)

    def play(self, now_ns: int) -> None:
        """Play everything that happens at `now_ns`, which must be the next event time."""
        self._compute(now_ns)
        self._receive(now_ns)
        self._go_on(now_ns)
        if now_ns == self._round_due_ns:
            self._round(now_ns)
            self._go_on(now_ns)

    def outcome(self) -> Outcome:
        """Return the outcome so far."""
        ended_ns = self.engine.now_ns
        if not self.processes and not self._coming:
            ended_ns = max(run.ended_ns or 0 for run in self._runs.values())
        return Outcome(
            jobs=tuple(self._outcomes()),
            ended_ns=ended_ns - START_NS,
            switches=self.engine.switches,
            is_stuck=self.is_stuck,
            stretches=tuple(self.engine.stretches or ()),
        )

    @property
    def _patience_ns(self) -> int:
        return STUCK_NS + 2 * self.workload.options.max_hold_ns

    @property
    def _is_left_alone(self) -> bool:
        """Tell whether nothing happens any more unless the core acts."""
        sleeping = any(process.next_ns is not None for process in self.processes.values())
        return not (sleeping or self._coming or self.engine.next_ns is not None)

    def _next_ns(self) -> int:
        wishes: list[int | None] = [self.engine.next_ns, self._round_due_ns]
        wishes += [process.next_ns for process in self.processes.values()]
        if self._coming:
            wishes.append(START_NS + self._coming[0].arrival_ns)
        # Clamped to the present: a process whose blocking peer has left could have gone on earlier.
        return min(max(at_ns, self.engine.now_ns) for at_ns in wishes if at_ns is not None)

    @property
    def _round_due_ns(self) -> int:
        """Return the time of the next round on the grid, without rounds that would see nothing."""
        due_ns = self._round_ns + PERIOD_NS
        if self._is_stirred or self.poller.is_active:
            return max(due_ns, _on_grid(self.engine.now_ns))
        wake_at_ns = self._look_at_ns
        if self._wake_at_ns is not None:
            wake_at_ns = min(wake_at_ns, self._wake_at_ns)
        return max(due_ns, _on_grid(wake_at_ns))

    def _compute(self, now_ns: int) -> None:
        ended = self.engine.advance(now_ns)
        if ended is not None:
            self.processes[ended].segment_ended(now_ns)
            self._note(now_ns)

    def _receive(self, now_ns: int) -> None:
        """Start the jobs that arrive now."""
        while self._coming and START_NS + self._coming[0].arrival_ns <= now_ns:
            self._note(now_ns)
            self._start(self._coming.pop(0), len(self._runs) + 1, now_ns)

    def _start(self, job: JobTable, number: int, now_ns: int) -> None:
        """Start a job as one process, which attaches at once: both have the job's number.

        A job whose promise the GPU can never keep does not start; `tandem run` would refuse it,
        too.
        """
        process = Process(
            number,
            program_of(job),
            engine=self.engine,
            memory=self._memory,
            peers=self.processes,
        )
        run = Run(job=job, process=process, worked_before_ns=self.engine.worked_ns)
        self._runs[number] = run
        spec, gpus = job.spec(), frozenset({GPU})
        if why_not := self.scheduler.objection_to(spec, gpus=gpus):
            process.refuse(why_not)
            run.ended_ns = now_ns
            return
        self.processes[number] = process
        self.poller.add(process)
        self._tell_together(
            JobRegistered(now_ns=now_ns, job_id=number, uid=UID, spec=spec, meant_gpus=gpus),
            ProcessAttached(
                now_ns=now_ns, process_id=number, job_id=number, uid=UID, gpu=GPU, spec=spec
            ),
            ProcessMapped(now_ns=now_ns, process_id=number),
        )

    def _go_on(self, now_ns: int) -> None:
        """Run all processes as far as possible; again if an exit made the core tell others."""
        self._is_told = True
        while self._is_told:
            self._is_told = False
            for process in list(self.processes.values()):
                if process.go_on(now_ns):
                    self._note(now_ns)
                if process.has_ended:
                    self._leave(process, now_ns)

    def _leave(self, process: Process, now_ns: int) -> None:
        number = process.process_id
        run = self._runs[number]
        run.ended_ns = now_ns
        run.of_all_ns = self.engine.worked_ns - run.worked_before_ns
        run.charged_ns = self.poller.charged_ns(number)
        last = self.poller.remove(number)
        del self.processes[number]
        self._tell_together(
            UsageSampled(now_ns=now_ns, samples=(last,)),
            ProcessExited(now_ns=now_ns, process_id=number),
            JobExited(now_ns=now_ns, job_id=number),
        )

    def _note(self, now_ns: int) -> None:
        self._moved_ns, self._is_stirred = now_ns, True

    def _round(self, now_ns: int) -> None:
        """Make a round, as `Loop._round`: the core gets usage if it is notable or due."""
        self._round_ns, self._is_stirred = now_ns, False
        is_notable = self.poller.look(now_ns)
        is_due = self._wake_at_ns is not None and now_ns >= self._wake_at_ns
        if is_due:
            self._wake_at_ns = None
        is_time_to_look = now_ns >= self._look_at_ns
        if is_time_to_look:
            self._look_at_ns = now_ns + LOOK_NS
        if not (is_notable or is_due or is_time_to_look):
            return
        changed = self.poller.changed()
        self._tell(
            UsageSampled(now_ns=now_ns, samples=changed) if changed else Ticked(now_ns=now_ns)
        )
        for event in list(self._served(now_ns)):
            self._tell(event)

    def _served(self, now_ns: int) -> Iterator[RequestsServed]:
        """Yield as observers/requests.py does, but only for processes that answer requests."""
        for number, process in self.processes.items():
            if has_requests(self.scheduler.jobs[number]) and (told := process.requests.take_told()):
                yield RequestsServed(
                    now_ns=now_ns,
                    process_id=number,
                    kind=process.requests.kind,
                    durations_ns=told,
                    at_once=1,
                )

    def _tell(self, event: Event) -> None:
        for action in self.scheduler.handle(event):
            self._perform(action)

    def _tell_together(self, *events: Event) -> None:
        """Tell of events together, as `Loop.note`: the core decides once it knows all of them."""
        actions = [action for event in events for action in self.scheduler.apply(event)]
        for action in (*actions, *self.scheduler.settle(events[-1].now_ns)):
            self._perform(action)

    def _perform(self, action: Action) -> None:
        """Perform an action here. No workload leads to those that raise."""
        match action:
            case WakeAt():
                self._wake_at_ns = action.at_ns
            case OpenGates() | CloseGates() | SetHonourPresence() | ChargeGroup():
                self._perform_for_all(action)
            case (
                SetWindow()
                | SetPresence()
                | SetMemoryLimit()
                | SetLane()
                | SetStepLimit()
                | SetClass()
                | SetLinger()
            ):
                self._command(action)
            case ForgetProcess() | AnnounceJob() | KeepTrials():
                pass  # about pages, watchers and a file, which do not exist here
            case (
                TellPause()
                | SetMemoryLease()
                | SetPhaseLimit()
                | SetMemoryWait()
                | SetMemoryPlace()
                | MoveMemory()
                | CheckpointProcess()
                | CopyPool()
                | OfferFile()
                | TakeBack()
                | DropPool()
                | DropFile()
                | SetSms()
                | FindPlan()
                | SignalJob()
            ):
                raise BugError(f"the simulator does not model {action}")
            case _:
                assert_never(action)

    def _perform_for_all(
        self, action: OpenGates | CloseGates | SetHonourPresence | ChargeGroup
    ) -> None:
        self._is_told = True
        for process_id in action.process_ids:
            told = self.processes[process_id].told
            match action:
                case OpenGates():
                    told.is_open = True
                case CloseGates():
                    told.is_open = False
                case SetHonourPresence():
                    told.honours_presence = action.honour
                case ChargeGroup():
                    self.poller.regroup(process_id, action.group)

    def _command(
        self,
        action: SetWindow
        | SetPresence
        | SetMemoryLimit
        | SetLane
        | SetStepLimit
        | SetClass
        | SetLinger,
    ) -> None:
        self._is_told = True
        told = self.processes[action.process_id].told
        match action:
            case SetWindow():
                told.window_segments, told.segment_ns = action.segments, action.segment_ns
            case SetPresence():
                told.looks_at = action.looks_at
            case SetMemoryLimit():
                told.memory_limit_bytes = action.limit_bytes
            case SetLane():
                told.lane_holds = action.holds
            case SetStepLimit():
                told.step_limit = action.steps
            case SetClass():
                told.job_class = action.job_class
            case SetLinger():
                told.linger_ns, told.linger_limit_ns = action.linger_ns, action.limit_ns

    def _outcomes(self) -> Iterator[JobOutcome]:
        """Yield outcomes in the order of the file, without jobs that did not arrive."""
        numbers = {run.job.name: number for number, run in self._runs.items()}
        for job in self.workload.jobs:
            if job.name in numbers:
                yield self._outcome_of(numbers[job.name])

    def _outcome_of(self, number: int) -> JobOutcome:
        run = self._runs[number]
        lives, process = run.ended_ns is None, run.process
        worked_ns = self.engine.worked_ns - run.worked_before_ns
        return JobOutcome(
            name=run.job.name,
            arrival_ns=run.job.arrival_ns,
            ended_ns=None if run.ended_ns is None else run.ended_ns - START_NS,
            problem=process.problem,
            steps=process.steps,
            gpu_ns=self.engine.worked_of_ns(number),
            charged_ns=self.poller.charged_ns(number) if lives else run.charged_ns,
            held_ns=process.held_ns(self.engine.now_ns),
            of_all_ns=worked_ns if lives else run.of_all_ns,
            requests_ns=tuple(process.requests.took_ns),
            slo_ns=run.job.slo_ns,
        )


def _on_grid(at_ns: int) -> int:
    """Return the time of the first round that is no earlier."""
    return -(-at_ns // PERIOD_NS) * PERIOD_NS
