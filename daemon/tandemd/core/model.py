"""Plain values of the scheduler: jobs, their processes, and the groups that run together.

A *job* is what `tandem run` started. A *process* is one attached process of it, on one GPU. A
*group* is every job of one uid with the same group key; it is held and released as one. An
*island* is a set of GPUs tied together by groups that span them: the unit in which turns are
taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from math import inf
from typing import ClassVar

from tandemd.core.curves.curves import Curve
from tandemd.core.histogram import WAITS_NS, Histogram
from tandemd.core.memory.memories import memory_of
from tandemd.core.space.scaling import Curve as ScalingCurve
from tandemd.core.space.sets import Span
from tandemd.core.story import Story
from tandemd.core.sums import total, totals
from tandemd.core.tuner.latency import Latency, Rhythm
from tandemd.core.tuner.served import Served
from tandemd.core.turns.backlog import Backlog, Standing
from tandemd.core.turns.pieces import Piece

NO_LIMIT = 2**64 - 1
MPS_MISSES = 2  # a list may be older than what is known of a process; the next one is not
NEVER_IDLE_NS = 100 * 365 * 86_400 * 10**9  # tandem._convert says as much for `never`
SWAP_WAIT_NS = 18 * 3600 * 10**9  # the longest that the shim can be told: a turn comes


class JobClass(IntEnum):
    """How much a job minds waiting; lower is more urgent. Values are those of shm::JobClass."""

    LATENCY = 1
    NORMAL = 2
    BATCH = 3


class JobState(IntEnum):
    """What a job is doing; values are those of tandem.v1.State."""

    STARTING = 1  # registered, no process attached yet
    RUNNING = 2  # has work on the GPU
    WAITING = 3  # has work, and it waits
    PAUSED = 4  # held by a person
    SWAPPED = 5  # likewise, and its memory is on the host
    IDLE = 6  # attached, no work
    DETACHED = 7  # had processes, or one that was refused, and has none now
    EXITED = 8


class WaitReason(IntEnum):
    """What a thread of a job waits for; values are those of shm::WaitReason."""

    NONE = 0
    GATE = 1
    WINDOW = 2
    PRESENCE = 3
    MEMORY = 4


class Preemption(IntEnum):
    """Why somebody lost the turn although it had work."""

    CLASS = 0  # a more urgent class has work again
    ARRIVAL = 1  # somebody who came before it has, under `fifo`
    QUANTUM = 2  # it had its share of the turns for now
    MAX_HOLD = 3  # somebody was held for so long
    MIN_SHARE = 4  # a less urgent class is owed that
    MEMORY = 5  # the GPU is too small for its memory now
    PARTNER = 6  # whom it shared the turn with has it no longer, or no longer together with it
    ORDER = 7  # what somebody else does goes before the rest of its own, by `token`


class Bound(IntEnum):
    """What more than half of somebody's GPU time is bound by; `docs/dag-analysis.md`, Classes."""

    UNKNOWN = 0
    COMPUTE = 1
    MEMORY = 2
    COPY = 3
    SMALL = 4  # too small to fill the GPU


class SwapOutcome(IntEnum):
    """How an order to move memory ended; values are those of shm::SwapOutcome."""

    NONE = 0
    REACHED = 1
    NO_HOST_ROOM = 2  # nothing was moved
    NOT_DRAINED = 3  # nothing was moved
    FAILED = 4  # what had been moved came back


class StayReason(IntEnum):
    """Why a stream does not go where its job is told to; values are those of shm::StayReason."""

    LEGACY = 0
    PER_THREAD = 1
    BLOCKING = 2
    ELSEWHERE = 3  # in another context than the primary one
    CAPTURING = 4  # captures, or may: what is in graphs cannot go
    REFUSED = 5  # the driver would not


class Refusal(IntEnum):
    """Who told a request for device memory that there is none; values are those of shm::Refusal."""

    QUOTA = 0
    DEVICE = 1
    LINE = 2


GroupKey = tuple[int, str]  # uid, "g:<group>" or "j:<job id>"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """What was asked for, already clamped to what the uid may have."""

    job_class: JobClass = JobClass.NORMAL
    memory_bytes: int = NO_LIMIT
    memory_percent: int = 0  # of the GPU, in place of `memory_bytes` until a process is on one
    memory_min_bytes: int = 0
    persistent_bytes: int = 0  # what it holds for good; with the next, 0 and 0 = not said
    ephemeral_bytes: int = 0  # what an iteration takes besides, at most
    wait_memory_ns: int = 0  # how long an allocation may wait for memory; 0 = not at all
    sm_percent: int = 0
    sm_count: int = 0  # in place of sm_percent, where the GPU's number is known
    isolation: str = ""  # of space.MODES; empty = any will do
    slo_p99_ns: int = 0
    preemptible: bool | None = None
    # Idle for so long it gives its memory up; 0 = as for all jobs, NEVER_IDLE_NS or more = never.
    idle_release_ns: int = 0
    swappable: bool = False  # its memory may be moved to the host
    checkpoint: bool = False  # while paused it may be saved to the host by the driver
    name: str = ""
    group: str = ""

    @property
    def patience_ns(self) -> int:
        """How long an allocation may wait: without being asked, only for what others can move."""
        is_implied = self.swappable or self.memory_min_bytes > 0
        return self.wait_memory_ns or (SWAP_WAIT_NS if is_implied else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """Parts of the GPU time that an iteration's launches are predicted to take; 0 to 1 together."""

    forward: float
    backward: float
    update: float
    marked: bool  # by the job itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """What the work of a process was bound by while it was recorded alone on its GPU."""

    MOST_UNTIMED: ClassVar[float] = 0.1  # of the operations; with more nothing is claimed

    shares: tuple[float, ...]  # of GPU time, by Bound; together 1, or all 0
    operations: int
    untimed: int  # of these: how long they take is not known
    at_ns: int  # when the recording ended

    @property
    def claims(self) -> bool:
        """Enough of it was timed to say what dominates, be it nothing."""
        return self.untimed <= self.MOST_UNTIMED * self.operations

    @property
    def bound(self) -> Bound:
        """What dominates."""
        if not self.claims:
            return Bound.UNKNOWN
        return next((b for b in Bound if self.shares[b] > 0.5), Bound.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Split:
    """How the driver splits the SMs of a GPU for everybody alike; what is over is in no group."""

    groups: int
    group_sms: int


@dataclass(frozen=True, slots=True)
class SmSet:
    """Some of the equal groups into which the driver splits the SMs of a GPU."""

    first: int
    count: int  # 0 = the whole GPU
    group_sms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryWait:
    """What the first of a process's threads that wait for device memory asks for."""

    ticket: int  # its number, from 1 in each process
    size_bytes: int
    is_quota: bool  # the job's limit is in its way, not what the GPU has left
    is_alone: bool  # all other threads of the process that use the GPU wait as well
    tried_round: int  # of the newest round in which it tried in vain; 0 = has not


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """One look at a process. Everything in it is the process's own claim."""

    process_id: int
    busy: bool = False  # work the GPU has not finished
    waiting_threads: int = 0
    wait_reason: WaitReason = WaitReason.NONE
    wait_since_ns: int = 0  # when the newest of the waiting threads began
    wait_total_ns: tuple[int, ...] = (0, 0, 0, 0, 0)  # by WaitReason; waits that have ended
    exclusive_ns: int = 0  # GPU time while no other group was busy
    shared_ns: int = 0  # its part of intervals with several groups: an estimate
    even_ns: int = 0  # the same, had these been split evenly among them
    device_bytes: int = 0
    swappable_bytes: int = 0  # of these
    swapped_bytes: int = 0  # of those, on the host
    iteration_peak_bytes: int = 0  # by its own marks: most since the first iteration ended,
    iteration_end_bytes: int = 0  # and at the end of one
    stopped: int = 0  # after how many steps its limit of marks stopped it last; 0 = never
    stopped_phases: int = 0  # the same of phases that it began
    begun_phases: int = 0  # it marked itself
    phase_hash: int = 0  # of the name of the one it is in; 0 = none
    critical_until_ns: int = 0  # it asks not to lose the GPU until then
    listens: bool = False  # its program wants to be told before somebody pauses it
    pause_ready: int = 0  # number of the newest pause for which that has done what it wanted to
    swap_done: int = 0  # number of the newest order to move memory that has ended
    swap_outcome: SwapOutcome = SwapOutcome.NONE  # how it did
    swap_out_bytes: int = 0  # copied to the host so far
    swap_out_ns: int = 0  # what these copies took, waits between them not counted
    swap_in_bytes: int = 0  # and back
    swap_in_ns: int = 0
    filed_bytes: int = 0  # of swappable_bytes, in files, until they have been copied back
    capturing: int = 0  # captures into graphs that go on: none of its memory moves meanwhile
    open_segments: int = 0  # submitted and not completed
    alloc_count: int = 0  # times it took memory from the device
    refused_by: tuple[int, ...] = (0, 0, 0)  # times it was told out of memory, by Refusal
    memory_wait: MemoryWait | None = None
    launches: int = 0
    work_ns: int = 0  # predicted GPU time of what it submitted
    timed_count: int = 0  # submissions with such a prediction
    steps: int = 0  # iterations it marked itself
    iterations: int = 0  # ends: marked ones; before the first mark, those found
    iteration_ns: int = 0  # their usual length; 0 = not known
    iteration_launches: int = 0
    gap_p50_ns: int = 0  # half of its gaps go on for this once its presence ends; 0 = not known
    gap_p90_ns: int = 0  # the same of nine in ten
    iteration_bytes: int = 0  # device memory when the newest iteration ended; 0 = none has
    peak_bytes: int = 0  # of device memory, since it attached
    step_work_ns: int = 0  # `work_ns` when the newest iteration ended, marked or found
    marks_requests: bool = False  # or it did: only marked ones are its requests
    phases: Phases | None = None
    in_set: SmSet | None = None  # no stream that goes with it has work outside; None: not known
    in_turn: int = 0  # `SetSms.turn` as of which that is so; 0 = the shim does not say
    following_streams: int = 0  # streams that go where it is told to
    staying_streams: tuple[int, ...] = (0, 0, 0, 0, 0, 0)  # and that do not, by StayReason
    runs_graphs: bool = False  # whose kernels do not go there either, in whatever stream
    linger_ns: int = 0  # how long its presence outlives its activity
    ungated: bool = False
    dropped_records: int = 0

    @property
    def charged_ns(self) -> int:
        """All GPU time that it is charged."""
        return self.exclusive_ns + self.shared_ns

    @property
    def served_ns(self) -> int:
        """GPU time as turns count it: beside others everybody has an equal part."""
        return self.exclusive_ns + self.even_ns

    @property
    def stays_out(self) -> bool:
        """Some of its work is on the whole GPU, whatever set it is told."""
        return self.runs_graphs or any(self.staying_streams)

    @property
    def resident_bytes(self) -> int:
        """What it holds of the GPU now."""
        return self.device_bytes - self.swapped_bytes

    @property
    def moved_bytes(self) -> tuple[int, int]:
        """What was copied to the host so far, and back."""
        return self.swap_out_bytes, self.swap_in_bytes

    @property
    def moved_ns(self) -> tuple[int, int]:
        """What copying that took."""
        return self.swap_out_ns, self.swap_in_ns

    def waited_ns(self, now_ns: int) -> tuple[int, ...]:
        """Time its threads waited, by WaitReason, the wait in progress included."""
        waited = list(self.wait_total_ns)
        if self.waiting_threads and self.wait_since_ns:
            waited[self.wait_reason] += max(0, now_ns - self.wait_since_ns)
        return tuple(waited)

    @property
    def waits_for_memory(self) -> bool:
        """A thread waits for memory of its own that is on the host, or for more of it."""
        return self.waiting_threads > 0 and self.wait_reason is WaitReason.MEMORY

    @property
    def wants_gpu(self) -> bool:
        """Has work on the GPU, or a thread that waits to put some there."""
        waits = self.waiting_threads > 0 and self.wait_reason is not WaitReason.MEMORY
        return self.busy or waits


@dataclass(slots=True, kw_only=True)
class Process:
    """One attached process."""

    process_id: int
    job_id: int
    gpu: int  # its first; its GPU time is charged there
    gpus: frozenset[int] = frozenset()  # all it uses, its first among them
    mapped: bool = False  # its presence page may be shown to others
    takes_files: bool = False  # in place of memory of the host (its shim is new enough)
    gives_back: bool = False  # such memory (likewise)
    mps_percent: float = 0.0  # of the SMs, as its environment says it to MPS; 0 = not known
    was_mps_client: bool = False  # MPS named it, once at least
    came_before_sets: bool = False  # its shim was told of none when it attached, and follows none
    mps_misses: int = 0  # how often in a row MPS named its clients, and it was none
    usage: Usage
    moved: Usage = field(init=False)  # as it was when it came to the SMs that it is on
    ends: int = 0  # of iterations: those it marks, or until it marks its first those found
    audited_bytes: int = 0  # by the driver's count, when last looked
    unseen_bytes: int = 0  # of these, what it does not count itself: contexts and code above all
    unseen_looks: tuple[int, ...] = ()  # the same by each of the last three looks
    asked_bytes: int = 0  # what it was asking the driver for, in the last look
    audit_misses: int = 0  # looks in a row that found its claim far below that
    unheld_bytes: int = 0  # of its claim, what the driver denied in two looks in a row
    denied_before_bytes: int = 0  # and in the last one alone
    curve: Curve | None = None  # of a recorded iteration
    curve_ns: int = 0  # when that was recorded
    lease_bytes: int = NO_LIMIT  # of device memory, that it is lent for now (shifts.py)
    room_bytes: int = NO_LIMIT  # and that all others leave it of what is not kept free
    away_since_ns: int = 0  # since when some of its memory is on the host; 0 = none is
    mix: Mix | None = None  # None: not known yet
    scaling: ScalingCurve | None = None  # how it scales with SMs
    foretold_ns: int = 0  # of an iteration on as many as now, by the curve before; 0 = nothing
    scaling_doubt: str = "nothing was recorded of it yet"  # why that is not known; empty: it is

    def __post_init__(self) -> None:
        self.gpus |= {self.gpu}
        self.moved = self.usage

    @property
    def bound_bytes(self) -> int:
        """Of device memory, what it may hold for now."""
        return min(self.lease_bytes, self.room_bytes)

    def count_ends(self, old: Usage, *, finds: bool) -> None:
        """Take in which iterations have ended since `old`; from its first mark only marks count."""
        new = self.usage
        if new.steps:
            self.ends += max(0, new.steps - old.steps)
        elif finds:
            self.ends += max(0, new.iterations - old.iterations)

    @property
    def is_beside_mps(self) -> bool:
        """It had run work already when MPS named its clients, twice in a row, without it."""
        return self.mps_misses >= MPS_MISSES

    @property
    def has_percentage(self) -> bool:
        """MPS lets it have some of the SMs alone: another split of them would be its own."""
        return 0 < self.mps_percent < 100

    @property
    def has_no_set(self) -> bool:
        """For as long as it runs, whatever sets its GPU has."""
        return self.has_percentage or self.came_before_sets

    @property
    def memories(self) -> frozenset[int]:
        """Those of these GPUs, each by one GPU that has it (memories.py)."""
        return frozenset(map(memory_of, self.gpus))


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Of a pause, to programs that listen."""

    number: int  # of the pause; never 0
    until_ns: int  # then the job is held, whether or not they are ready; 0 = it is
    is_awaited: bool = False  # they were told by a daemon before this one, and may still be to come


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """Somebody ends the job."""

    signal: str  # sent last, as in `cancels.SIGNALS`
    kill_at_ns: int  # SIGKILL


@dataclass(slots=True, kw_only=True)
class Job:
    """One job and what was decided about it."""

    job_id: int
    uid: int
    arrival: int  # 0, 1, 2.. in order of registration
    created_ns: int
    registered: bool  # by `tandem run`, whose process still lives
    spec: JobSpec
    state: JobState = JobState.STARTING
    turned_away: str = ""  # why the last process that came was refused; empty: it was not
    meant_gpus: frozenset[int] = frozenset()  # that it may use, as it was registered
    paused: bool = False
    notice: Notice | None = None  # somebody pauses it, and its programs have been told
    pause_number: int = 0  # that they were told, until it goes on; 0 = none was
    unready: int = 0  # of them, when it was held
    cancel: Cancel | None = None
    groups_wanted: int = 0  # of its GPU's SMs, in mode mps+green; 0 = what is left, with others
    set: Span | None = None  # where that is, on its first GPU; None: sets mean nothing there
    part: int = 0  # of a plan (divisions.py): with whom it shares these and takes turns; 0 = none
    lease_patience_ns: int = 0  # so long its allocations wait at least, whatever was asked for
    home: GroupKey | None = None  # the group that its own became part of
    is_minimum_kept: bool = True  # `memory_min_bytes` is promised, where it is
    processes: dict[int, Process] = field(default_factory=dict)
    left_ns: int = 0  # when a process of it left last
    left_gpus: frozenset[int] = frozenset()  # and which GPUs that had used
    retired_gpu_ns: int = 0  # of processes that are gone
    retired_shared_ns: int = 0
    retired_launches: int = 0
    retired_steps: int = 0
    retired_iterations: int = 0
    retired_wait_ns: tuple[int, ...] = (0, 0, 0, 0, 0)
    pauses_ns: int = 0  # that its threads waited while somebody had paused it, but for this pause,
    gate_at_pause_ns: int = 0  # before which they had waited so long for their gates
    retired_refused_by: tuple[int, ...] = (0, 0, 0)
    retired_moved_bytes: tuple[int, ...] = (0, 0)
    retired_moved_ns: tuple[int, ...] = (0, 0)
    used_gpus: frozenset[int] = frozenset()  # by processes that are gone
    peak_bytes: int = 0  # of device memory, of all its processes together as far as it was seen
    ended_ns: int = 0
    latency: Latency = field(default_factory=Latency)  # of its requests: what decisions go by,
    served: Served = field(default_factory=Served)  # and what people are told
    gate_waits: Histogram = field(default_factory=lambda: Histogram(WAITS_NS))  # those that ended
    preemptions: list[int] = field(default_factory=lambda: [0] * len(Preemption))  # times, by why
    rhythm: Rhythm | None = None  # of these, or of its iterations; None: not known
    rhythm_due_ns: int = 0  # it may be another then
    story: Story = field(default_factory=Story)
    events: Story = field(default_factory=Story)  # what watchers were told
    _own_key: GroupKey = field(init=False)

    def __post_init__(self) -> None:
        group = self.spec.group  # for good
        self._own_key = (self.uid, f"g:{group}" if group else f"j:{self.job_id}")

    @property
    def display_name(self) -> str:
        """`j-7f3a`: how people name the job."""
        return f"j-{self.job_id:x}"

    @property
    def title(self) -> str:
        """The same with the name that somebody gave it, if any."""
        name = self.spec.name
        return f"{self.display_name} {name!r}" if name else self.display_name

    @property
    def group_key(self) -> GroupKey:
        """Which group it belongs to; a group never crosses uids."""
        return self.home or self._own_key

    @property
    def patience_ns(self) -> int:
        """How long an allocation may wait for memory; 0 = not at all."""
        return max(self.spec.patience_ns, self.lease_patience_ns)

    @property
    def gpu_ns(self) -> int:
        """GPU time so far, the estimated part included."""
        live = (p.usage.charged_ns for p in self.processes.values())
        return total((self.retired_gpu_ns, *live))

    @property
    def iteration_ns(self) -> int:
        """The usual length of one, of its slowest process; 0 = not known."""
        return max((p.usage.iteration_ns for p in self.processes.values()), default=0)

    @property
    def scaling(self) -> ScalingCurve | None:
        """How its slowest process scales with SMs; None: of none it is known."""
        known = [p.scaling for p in self.processes.values() if p.scaling is not None]
        return max(known, key=lambda curve: curve.recorded_ns, default=None)

    @property
    def scaling_doubt(self) -> str:
        """Why that is not known; empty: it is."""
        if self.scaling is not None:
            return ""
        doubts = [p.scaling_doubt for p in self.processes.values()]
        return doubts[0] if doubts else "it has no process on a gpu"

    @property
    def shared_ns(self) -> int:
        """The estimated part of `gpu_ns`."""
        live = (p.usage.shared_ns for p in self.processes.values())
        return total((self.retired_shared_ns, *live))

    @property
    def launches(self) -> int:
        """Submissions so far."""
        live = (p.usage.launches for p in self.processes.values())
        return total((self.retired_launches, *live))

    @property
    def moved_bytes(self) -> tuple[int, ...]:
        """What was copied to the host so far, and back."""
        rows = [p.usage.moved_bytes for p in self.processes.values()]
        return totals([self.retired_moved_bytes, *rows])

    @property
    def moved_ns(self) -> tuple[int, ...]:
        """What copying that took."""
        rows = [p.usage.moved_ns for p in self.processes.values()]
        return totals([self.retired_moved_ns, *rows])

    @property
    def steps(self) -> int:
        """Iteration marks so far."""
        live = (p.usage.steps for p in self.processes.values())
        return total((self.retired_steps, *live))

    @property
    def iterations(self) -> int:
        """Ends of iterations so far: of each process those it marks, or else those found."""
        live = (p.usage.steps or p.usage.iterations for p in self.processes.values())
        return total((self.retired_iterations, *live))

    @property
    def refused_by(self) -> tuple[int, ...]:
        """Times it was told out of memory, by Refusal."""
        rows = [p.usage.refused_by for p in self.processes.values()]
        return totals([self.retired_refused_by, *rows])

    def waited_ns(self, now_ns: int) -> tuple[int, ...]:
        """Time its threads waited, by WaitReason; not for who had paused it."""
        waited = list(self._all_waits_ns(now_ns))
        here_ns = max(0, waited[WaitReason.GATE] - self.gate_at_pause_ns) if self.paused else 0
        waited[WaitReason.GATE] = max(0, waited[WaitReason.GATE] - self.pauses_ns - here_ns)
        return tuple(waited)

    def _all_waits_ns(self, now_ns: int) -> tuple[int, ...]:
        rows = [p.usage.waited_ns(now_ns) for p in self.processes.values()]
        return totals([self.retired_wait_ns, *rows])

    def pause(self, now_ns: int) -> None:
        """Its gates are closed from now on."""
        if not self.paused:
            self.gate_at_pause_ns = self._all_waits_ns(now_ns)[WaitReason.GATE]
        self.paused = True

    def resume(self, now_ns: int) -> None:
        """They open when it is its turn."""
        waited_ns = self._all_waits_ns(now_ns)[WaitReason.GATE]
        self.pauses_ns += max(0, waited_ns - self.gate_at_pause_ns)
        self.paused = False

    def note_peak(self, usage: Usage, old: Usage) -> None:
        """Of a process of it, which may hold more than before, or did between two looks."""
        if usage.device_bytes <= old.device_bytes and usage.peak_bytes <= old.peak_bytes:
            return
        held = (p.usage.device_bytes for p in self.processes.values())
        self.peak_bytes = max(self.peak_bytes, usage.peak_bytes, total(held))

    def tell(self, now_ns: int, line: str) -> None:
        """Add a line to the story."""
        self.story.tell(now_ns, line)


@dataclass(slots=True, kw_only=True)
class Group:
    """The jobs and processes that are held and released together."""

    key: GroupKey
    number: int  # for the poller, which charges GPU time by group
    arrival: int
    jobs: dict[int, Job] = field(default_factory=dict)
    processes: dict[int, Process] = field(default_factory=dict)
    is_tied: bool = False  # its processes share something on the GPU
    # Facts of the newest samples.
    busy: bool = False
    wants: bool = False
    last_wanted_ns: int = 0
    calls: bool = False  # a thread of it waits for anything, or has work on the GPU
    needs_memory: bool = False  # it waits for memory that it gets with the turn
    misfit_bytes: int = 0  # by so much the GPU is too small for its memory now: a turn is no use
    notice: tuple[int, int] | None = None  # to give memory up: steps when given, latest end
    stall_ns: int = 0  # passing the turn on from it to the next takes so long: memory has to move
    fill_ns: int = 0  # and so much longer this time: the host's memory for it has to be filled
    turn_ns: int = 0  # GPU time that its turn lasts at least, because of `stall_ns`
    critical_until_ns: int = 0  # one of its processes asks not to lose the GPU until then
    preemptible: bool = True  # its equals may have the turn in the middle of an iteration of it
    steps: int = 0  # ends of iterations: marked, or else found
    step_served_ns: int = 0  # `served_ns` at the newest of them
    step_cost_ns: int = 0  # GPU time of one of the newest; 0 = not known
    piece: Piece = field(default_factory=Piece)  # of its work: an iteration, a request
    backlog: Backlog = field(default_factory=Backlog)  # of what it has on the GPU
    gap_p50_ns: int = 0  # the least of its processes: a gap ends with the first
    short_gaps: bool = False  # too short for others to use a whole window
    bound: Bound = Bound.UNKNOWN  # of all its processes alike
    served_ns: int = 0  # GPU time since it exists, beside others evenly: how long it had its turns
    charged_ns: int = 0  # the same, beside others by what it takes: what it cost them
    virtual_ns: float = 0.0  # that divided by weight, as fair queueing counts it
    weight: float = 1.0  # of its class, or as its share of time calls for (space.py)
    tuned_share: float = 0.0  # of that time, that the tuner gives it; 0 = as its class has it
    owed_share: float = 0.0  # of the time of its tier, where somebody said one; 0 = not known
    is_kept: bool = False  # from its next iteration (shifts.py) or phase (phase_gate.py)
    # The gate.
    open: bool = True
    closed_at_ns: int = 0
    drained: bool = True  # nothing of it was on the GPU since the gate closed
    hold_since_ns: int | None = None  # since when it is held although it has work
    drain_failures: int = 0
    reopened_steps: int | None = None  # reopened after a failed drain, until this many steps passed
    reopened_until_ns: int = 0
    undrainable: bool = False
    undrainable_on: float = 0.0  # as `set_size` was when it became so
    barred: bool = False  # by the lanes: it is not let in, or its lane is another's now
    memory_limit_bytes: int = NO_LIMIT  # of all its processes, by the lanes
    is_beside: bool = False  # lanes run side by side on its GPU
    turns: int = 0  # times its gate opened for it after it was held
    unused_since_ns: int | None = None  # since when its gate is open and it only waits
    dozing: bool = False  # it did so for too long: no claim until it submits something

    @property
    def stands(self) -> Standing:
        """What its processes submitted so far, and what of it has not ended."""
        usages = [process.usage for process in self.processes.values()]
        return sum(one.launches for one in usages), sum(one.open_segments for one in usages)

    def end_hold(self, now_ns: int) -> None:
        """It is no longer held, or has no work any more: so long each of its jobs waited."""
        if self.hold_since_ns is not None:
            for job in self.jobs.values():
                job.gate_waits.add((now_ns - self.hold_since_ns,))
            self.piece.account(self.hold_since_ns, now_ns)
        self.hold_since_ns = None

    def account_wait(self, now_ns: int) -> None:
        """What its piece of work has waited is known as of now."""
        if self.hold_since_ns is not None:
            self.piece.account(self.hold_since_ns, now_ns)

    def preempt(self, why: Preemption) -> None:
        """Its jobs lose the turn, with work that has not ended."""
        for job in self.jobs.values():
            job.preemptions[why] += 1

    @property
    def job_class(self) -> JobClass:
        """The most urgent class among its jobs: the others ride along."""
        return min(job.spec.job_class for job in self.jobs.values())

    @property
    def paused(self) -> bool:
        """A person paused one of its jobs; a group is never split, so all of it waits."""
        return any(job.paused for job in self.jobs.values())

    @property
    def is_closed(self) -> bool:
        """Its gate stays closed whatever others do."""
        return self.barred or self.paused

    @property
    def gpus(self) -> frozenset[int]:
        """The GPUs its processes use."""
        return frozenset().union(*[process.gpus for process in self.processes.values()])

    @property
    def set_size(self) -> float:
        """Groups of SMs of the job that has the fewest; inf = nobody has a set."""
        return min((job.set.count for job in self.jobs.values() if job.set), default=inf)

    @property
    def title(self) -> str:
        """Short name for stories: its jobs."""
        return ", ".join(job.title for job in self.jobs.values())

    def tell(self, now_ns: int, line: str) -> None:
        """Add a line to the story of every job in it."""
        for job in self.jobs.values():
            job.tell(now_ns, line)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Settings of the scheduler. Times are nanoseconds."""

    policy: str = "priority"
    window_segments: int = 2  # of best-effort work; 0 = no window
    segment_ns: int = 100_000
    quantum_ns: int = 10_000_000
    linger_ns: int = 300_000  # presence of the latency class outlives activity: at least
    linger_limit_ns: int = 2_000_000  # at most, as its gaps call for
    idle_grace_ns: int = 1_000_000  # without work for this long, a holder gives up its turn
    drain_ns: int = 250_000_000
    drain_tries: int = 3
    max_hold_ns: int = 20_000_000_000
    critical_ns: int = 10_000_000  # a wish not to lose the GPU lengthens a turn so far; 0 = never
    nonpreemptible_ns: int = 1_000_000_000  # and iterations that are not to be cut; 0 = never
    nonpreemptible_classes: frozenset[JobClass] = frozenset()  # where a job does not say it itself
    lane_order: str = "fifo"  # of lanes.ORDERS: who comes next under the policy `lanes`
    min_share: float = 0.05  # of a waiting tier, over `share_period_ns`
    share_period_ns: int = 1_000_000_000
    throttle_loss: float = 0.03  # by so much longer iterations may take beside lower classes
    presence_across_users: bool = True
    find_iterations: bool = True  # else only those that jobs mark themselves count
    forecast_gaps: bool = True  # else every window is the configured one
    classify_kernels: bool = True  # else what bounds anybody's work counts as unknown
    size_sets: bool = True  # of SMs, by how jobs scale; else only `--sm` and others do
    probe_sets: bool = True  # jobs are recorded on fewer SMs for a moment, to see how they scale
    mps_gpus: frozenset[int] = frozenset()  # where kernels of several processes run side by side
    splits: Mapping[int, Split] = field(default_factory=dict)  # of those in mode mps+green
    unproved: Mapping[int, str] = field(default_factory=dict)  # why others have no sets
    proving: frozenset[int] = frozenset()  # that may have them, which is being found out
    retried: frozenset[int] = frozenset()  # of the unproved those where it will be
    mig_gpus: frozenset[int] = frozenset()  # that are instances of MIG
    sm_counts: Mapping[int, int] = field(default_factory=dict)  # of each GPU; 0 = not known
    # Of each GPU: mode -> why it cannot work there; empty or missing: it can, or nobody knows.
    why_not: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    gpu_names: Mapping[int, str] = field(default_factory=dict)  # of those not called by their index
    planner: bool = False  # jobs share time, space or both by plan (divisions.py)
    tuner: bool = False  # sizes follow what requests take (tuner.py)
    tuner_window_ns: int = 2_000_000_000
    tuner_band: float = 0.1  # of an objective, that is neither too much nor too little
    memory_quiet_ns: int = 5_000_000_000  # a process that waits and does nothing else is stuck
    memory_grace_ns: int = 1_000_000_000  # for the driver to give back what an ended process held
    link_bytes_s: float = 12e9  # to the host and back, until it was measured
    idle_release_ns: int = 0  # of jobs that do not say it themselves; 0 = never
    host_limit_bytes: int = 64 << 30  # for memory moved out; 0 = none is moved
    file_limit_bytes: int = 0  # where the host's memory does not suffice; 0 = nothing goes to files
    swappable_classes: frozenset[JobClass] = frozenset()  # where a job does not say it itself
    finished_kept_ns: int = 600_000_000_000
    weights: tuple[tuple[JobClass, int], ...] = (
        (JobClass.LATENCY, 8),
        (JobClass.NORMAL, 4),
        (JobClass.BATCH, 1),
    )

    def idle_release_of(self, spec: JobSpec) -> int:
        """Idle for so long a job gives its memory up; 0 = never."""
        own_ns = spec.idle_release_ns or self.idle_release_ns
        return own_ns if own_ns < NEVER_IDLE_NS else 0

    def may_preempt(self, spec: JobSpec) -> bool:
        """Whether the job's iterations may be cut at the end of a turn."""
        if spec.preemptible is not None:
            return spec.preemptible
        return spec.job_class not in self.nonpreemptible_classes

    def mode_of(self, gpus: Iterable[int]) -> str:
        """What all of these GPUs are in: a key of `substrate.SUBSTRATES`."""
        used = frozenset(gpus)
        if used and used <= self.mig_gpus:
            return "mig"
        if used and used <= self.splits.keys():
            return "mps+green"
        return "mps" if self.overlaps(used) else "time"

    def overlaps(self, gpus: Iterable[int]) -> bool:
        """Whether kernels of several processes run side by side on all of these GPUs."""
        used = frozenset(gpus)
        return bool(used) and used <= self.mps_gpus

    def hindrance(self, gpu: int, mode: str) -> str:
        """Why this mode cannot work on a GPU; empty: nothing is known to keep it from that."""
        unproved = self.unproved.get(gpu, "") if mode == "mps+green" else ""
        return self.why_not.get(gpu, {}).get(mode, "") or unproved

    def being_proved(self, gpus: Iterable[int]) -> frozenset[int]:
        """Of these GPUs, or of all if none is named: those whose mode is known only soon."""
        return self.proving & (frozenset(gpus) or frozenset(self.sm_counts))

    @property
    def may_have_sets(self) -> frozenset[int]:
        """GPUs that have none now."""
        return self.proving | self.retried

    def name_of(self, gpu: int) -> str:
        """As people call it."""
        return self.gpu_names.get(gpu, str(gpu))

    def weight(self, job_class: JobClass) -> int:
        """Share of GPU time a class gets beside the others."""
        return next(weight for of, weight in self.weights if of is job_class)
