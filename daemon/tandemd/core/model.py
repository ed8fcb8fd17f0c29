"""The scheduler's plain values: jobs, their processes, and the groups that run together.

A *job* is what `tandem run` started. A *process* is one attached process of a job; its GPU time is
charged to its first GPU. A *group* is all jobs of one uid with the same group key; its gates open
and close as one. An *island* is a set of GPUs tied together by groups that span them: the unit in
which turns are taken.
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
MPS_MISSES = 2  # one list may be older than what is known of a process, two in a row are not
NEVER_IDLE_NS = 100 * 365 * 86_400 * 10**9  # tandem._convert sends this or more for `never`
# The longest wait that the shim can be told; used where a turn is certain to come.
SWAP_WAIT_NS = 18 * 3600 * 10**9


class JobClass(IntEnum):
    """How much a job minds waiting; lower is more urgent. Values are those of shm::JobClass."""

    LATENCY = 1
    NORMAL = 2
    BATCH = 3


class JobState(IntEnum):
    """What a job is doing; values are those of tandem.v1.State."""

    STARTING = 1  # registered, no process attached yet
    RUNNING = 2  # has work on the GPU
    WAITING = 3  # has work, which is waiting
    PAUSED = 4  # held by a person
    SWAPPED = 5  # held by a person, with its memory on the host
    IDLE = 6  # attached, no work
    DETACHED = 7  # had processes, or one that was refused; has none now
    EXITED = 8


class WaitReason(IntEnum):
    """What a thread of a job waits for; values are those of shm::WaitReason."""

    NONE = 0
    GATE = 1
    WINDOW = 2
    PRESENCE = 3
    MEMORY = 4


class Preemption(IntEnum):
    """Why a group lost the turn although it had work."""

    CLASS = 0  # a more urgent class has work again
    ARRIVAL = 1  # an earlier arrival has work again, under `fifo`
    QUANTUM = 2  # it has used its share of the turns for now
    MAX_HOLD = 3  # another group was held for the maximum time
    MIN_SHARE = 4  # a less urgent class is owed its minimal share
    MEMORY = 5  # its memory does not fit the GPU for now
    PARTNER = 6  # the group it shared the turn with lost the turn, or no longer shares it
    ORDER = 7  # under `token`: another's piece of work goes before the rest of its own


class Bound(IntEnum):
    """What bounds more than half of someone's GPU time; `docs/dag-analysis.md`, Classes."""

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
    FAILED = 4  # what had been moved was moved back


class StayReason(IntEnum):
    """Why a stream stays off its job's set of SMs; values are those of shm::StayReason."""

    LEGACY = 0
    PER_THREAD = 1
    BLOCKING = 2
    ELSEWHERE = 3  # in a context other than the primary one
    CAPTURING = 4  # captures, or may: work in graphs cannot be moved
    REFUSED = 5  # the driver refused


class Refusal(IntEnum):
    """Who refused a request for device memory; values are those of shm::Refusal."""

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
    persistent_bytes: int = 0  # what it holds for good; with `ephemeral_bytes`: both 0 = not stated
    ephemeral_bytes: int = 0  # the most that an iteration takes on top
    wait_memory_ns: int = 0  # how long an allocation may wait for memory; 0 = not at all
    sm_percent: int = 0
    sm_count: int = 0  # replaces `sm_percent` where the GPU's SM count is known
    isolation: str = ""  # one of `space.asked.MODES`; empty = any
    slo_p99_ns: int = 0
    preemptible: bool | None = None
    # Idle time after which it gives up its memory; 0 = the default, NEVER_IDLE_NS or more = never.
    idle_release_ns: int = 0
    swappable: bool = False  # its memory may be moved to the host
    checkpoint: bool = False  # while paused, the driver may save it to the host
    name: str = ""
    group: str = ""

    @property
    def patience_ns(self) -> int:
        """How long an allocation may wait; unasked, only for memory that others can move."""
        is_implied = self.swappable or self.memory_min_bytes > 0
        return self.wait_memory_ns or (SWAP_WAIT_NS if is_implied else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """Predicted split of an iteration's GPU time among its phases: about 1 in all."""

    forward: float
    backward: float
    update: float
    marked: bool  # by the job itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """What bounded a process's work while it was recorded alone on its GPU."""

    MOST_UNTIMED: ClassVar[float] = 0.1  # share of the operations; above it, nothing is claimed

    shares: tuple[float, ...]  # of GPU time, by Bound; they add up to 1, or all are 0
    operations: int
    untimed: int  # those of unknown duration
    at_ns: int  # when the recording ended

    @property
    def claims(self) -> bool:
        """Tell whether enough was timed to say what dominates, or that nothing does."""
        return self.untimed <= self.MOST_UNTIMED * self.operations

    @property
    def bound(self) -> Bound:
        """What dominates; UNKNOWN if nothing does or too little was timed."""
        if not self.claims:
            return Bound.UNKNOWN
        return next((b for b in Bound if self.shares[b] > 0.5), Bound.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Split:
    """How the driver splits a GPU's SMs into equal groups; left-over SMs are in no group."""

    groups: int
    group_sms: int


@dataclass(frozen=True, slots=True)
class SmSet:
    """A contiguous range of the equal groups into which the driver splits a GPU's SMs."""

    first: int
    count: int  # 0 = the whole GPU
    group_sms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryWait:
    """The request of the process's first thread that waits for device memory."""

    ticket: int  # its number, from 1 in each process
    size_bytes: int
    is_quota: bool  # blocked by the job's limit, not by the memory left on the GPU
    is_alone: bool  # all other GPU-using threads of the process wait as well
    tried_round: int  # newest round in which it tried in vain; 0 = it has not tried


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """One sample of a process. Everything in it is the process's own claim."""

    process_id: int
    busy: bool = False  # work the GPU has not finished
    waiting_threads: int = 0
    wait_reason: WaitReason = WaitReason.NONE
    wait_since_ns: int = 0  # when the newest of the waiting threads began
    wait_total_ns: tuple[int, ...] = (0, 0, 0, 0, 0)  # by WaitReason; finished waits only
    exclusive_ns: int = 0  # GPU time while no other group was busy
    shared_ns: int = 0  # its share of intervals with several groups: an estimate
    even_ns: int = 0  # the same if those were split evenly among the groups
    device_bytes: int = 0
    swappable_bytes: int = 0  # part of `device_bytes` that may be moved
    swapped_bytes: int = 0  # part of `swappable_bytes` that is on the host
    iteration_peak_bytes: int = 0  # maximum since the end of its first marked iteration
    iteration_end_bytes: int = 0  # maximum held at the end of a marked iteration
    stopped: int = 0  # step count at which its limit on marks last stopped it; 0 = never
    stopped_phases: int = 0  # the same in phases begun
    begun_phases: int = 0  # by its own marks
    phase_hash: int = 0  # hash of the current phase's name; 0 = none
    critical_until_ns: int = 0  # it asks to keep the GPU until then
    listens: bool = False  # its program wants notice before a pause
    pause_ready: int = 0  # newest pause for which the program has finished its preparations
    swap_done: int = 0  # number of the newest finished order to move memory
    swap_outcome: SwapOutcome = SwapOutcome.NONE  # of that order
    swap_out_bytes: int = 0  # copied to the host so far
    swap_out_ns: int = 0  # duration of these copies, without the waits between them
    swap_in_bytes: int = 0  # copied back so far
    swap_in_ns: int = 0
    filed_bytes: int = 0  # part of `swappable_bytes` in files, until copied back
    capturing: int = 0  # stream captures in progress; none of its memory moves meanwhile
    open_segments: int = 0  # submitted and not completed
    alloc_count: int = 0  # times it allocated from the device
    refused_by: tuple[int, ...] = (0, 0, 0)  # out-of-memory answers, by Refusal
    memory_wait: MemoryWait | None = None
    launches: int = 0
    work_ns: int = 0  # predicted GPU time of its submissions
    timed_count: int = 0  # submissions that have a prediction
    steps: int = 0  # iterations that it marked itself
    iterations: int = 0  # iteration ends: marked ones; before the first mark, found ones
    iteration_ns: int = 0  # typical duration; 0 = not known
    iteration_launches: int = 0
    # Half of its gaps are over within this time after its presence ends; 0 = not known.
    gap_p50_ns: int = 0
    gap_p90_ns: int = 0  # the same for nine in ten
    iteration_bytes: int = 0  # device memory at the end of the newest iteration; 0 = none has ended
    peak_bytes: int = 0  # of device memory, since it attached
    step_work_ns: int = 0  # `work_ns` at the end of the newest iteration, marked or found
    marks_requests: bool = False  # it has marked requests: only these count as its requests
    phases: Phases | None = None
    # The set that has all work of the streams that follow it; None: not known.
    in_set: SmSet | None = None
    in_turn: int = 0  # the `SetSms.turn` that `in_set` reflects; 0 = the shim does not report it
    following_streams: int = 0  # streams that move to its set
    staying_streams: tuple[int, ...] = (0, 0, 0, 0, 0, 0)  # those that do not, by StayReason
    runs_graphs: bool = False  # in any stream; kernels in graphs do not move to its set
    linger_ns: int = 0  # how long its presence outlives its activity
    ungated: bool = False
    dropped_records: int = 0

    @property
    def charged_ns(self) -> int:
        """All GPU time charged to it."""
        return self.exclusive_ns + self.shared_ns

    @property
    def served_ns(self) -> int:
        """GPU time as turns count it: intervals with several groups are split evenly."""
        return self.exclusive_ns + self.even_ns

    @property
    def stays_out(self) -> bool:
        """Tell whether some of its work uses the whole GPU, whatever its set."""
        return self.runs_graphs or any(self.staying_streams)

    @property
    def resident_bytes(self) -> int:
        """Device memory that it occupies now."""
        return self.device_bytes - self.swapped_bytes

    @property
    def moved_bytes(self) -> tuple[int, int]:
        """Bytes copied to the host so far, and back."""
        return self.swap_out_bytes, self.swap_in_bytes

    @property
    def moved_ns(self) -> tuple[int, int]:
        """How long these copies took."""
        return self.swap_out_ns, self.swap_in_ns

    def waited_ns(self, now_ns: int) -> tuple[int, ...]:
        """Time its threads waited, by WaitReason, the wait in progress included."""
        waited = list(self.wait_total_ns)
        if self.waiting_threads and self.wait_since_ns:
            waited[self.wait_reason] += max(0, now_ns - self.wait_since_ns)
        return tuple(waited)

    @property
    def waits_for_memory(self) -> bool:
        """Tell whether a thread waits for its memory on the host, or for more memory."""
        return self.waiting_threads > 0 and self.wait_reason is WaitReason.MEMORY

    @property
    def wants_gpu(self) -> bool:
        """Tell whether it has work on the GPU, or a thread waiting to submit some."""
        waits = self.waiting_threads > 0 and self.wait_reason is not WaitReason.MEMORY
        return self.busy or waits


@dataclass(slots=True, kw_only=True)
class Process:
    """One attached process."""

    process_id: int
    job_id: int
    gpu: int  # its first, to which its GPU time is charged
    gpus: frozenset[int] = frozenset()  # all that it uses, the first included
    mapped: bool = False  # its presence page may be shown to others
    takes_files: bool = False  # in place of host memory; its shim is new enough
    gives_back: bool = False  # it can return host memory; its shim is new enough
    mps_percent: float = 0.0  # its share of the SMs by its environment's MPS setting; 0 = not known
    was_mps_client: bool = False  # MPS listed it at least once
    came_before_sets: bool = False  # no sets existed when its shim attached, so it follows none
    mps_misses: int = 0  # MPS client lists in a row without it
    usage: Usage
    moved: Usage = field(init=False)  # its usage when it arrived on its present SMs
    ends: int = 0  # of iterations: marked ones; before its first mark, found ones
    audited_bytes: int = 0  # what the driver counted in the newest look
    unseen_bytes: int = 0  # part of these that it does not count itself: mostly contexts and code
    unseen_looks: tuple[int, ...] = ()  # the same in each of the last three looks
    asked_bytes: int = 0  # what it was requesting from the driver in the last look
    audit_misses: int = 0  # looks in a row in which its claim was far below the driver's count
    unheld_bytes: int = 0  # part of its claim that the driver denied in two looks in a row
    denied_before_bytes: int = 0  # part that the driver denied in the last look
    curve: Curve | None = None  # memory curve of a recorded iteration
    curve_ns: int = 0  # when that was recorded
    lease_bytes: int = NO_LIMIT  # device memory lent to it for now (shifts.py)
    room_bytes: int = NO_LIMIT  # what all others leave it of the memory that is not kept free
    away_since_ns: int = 0  # since when part of its memory is on the host; 0 = none is
    mix: Mix | None = None  # None: not known yet
    scaling: ScalingCurve | None = None  # how it scales with SMs
    # Iteration length that the previous curve predicted for its present SMs; 0 = no prediction.
    foretold_ns: int = 0
    # Why `scaling` is not known; empty: it is.
    scaling_doubt: str = "nothing has been recorded of it yet"

    def __post_init__(self) -> None:
        self.gpus |= {self.gpu}
        self.moved = self.usage

    @property
    def bound_bytes(self) -> int:
        """Device memory that it may hold for now."""
        return min(self.lease_bytes, self.room_bytes)

    def count_ends(self, old: Usage, *, finds: bool) -> None:
        """Count the iterations that ended since `old`; from the first mark on, only marks count."""
        new = self.usage
        if new.steps:
            self.ends += max(0, new.steps - old.steps)
        elif finds:
            self.ends += max(0, new.iterations - old.iterations)

    @property
    def is_beside_mps(self) -> bool:
        """Tell whether two MPS client lists in a row lacked it although it had run work."""
        return self.mps_misses >= MPS_MISSES

    @property
    def has_percentage(self) -> bool:
        """Tell whether MPS restricts it to some SMs; the driver would split those differently."""
        return 0 < self.mps_percent < 100

    @property
    def has_no_set(self) -> bool:
        """Tell whether it can never have a set of SMs, whatever its GPU has."""
        return self.has_percentage or self.came_before_sets

    @property
    def memories(self) -> frozenset[int]:
        """The memories of its GPUs, each named by one GPU that has it (memories.py)."""
        return frozenset(map(memory_of, self.gpus))


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Notice of a pause, given to programs that listen."""

    number: int  # number of the pause; never 0
    until_ns: int  # deadline: then the job is held, ready or not; 0 = it is held already
    # An earlier daemon told the programs, which may not have re-attached yet.
    is_awaited: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """Somebody ends the job."""

    signal: str  # the last one sent, from `cancels.SIGNALS`
    kill_at_ns: int  # when SIGKILL is sent


@dataclass(slots=True, kw_only=True)
class Job:
    """One job and what was decided about it."""

    job_id: int
    uid: int
    arrival: int  # 0, 1, 2.. in order of registration
    created_ns: int
    registered: bool  # by a `tandem run` whose process still lives
    spec: JobSpec
    state: JobState = JobState.STARTING
    turned_away: str = ""  # why the newest process was refused; empty: it was not
    meant_gpus: frozenset[int] = frozenset()  # GPUs it may use, from its registration
    paused: bool = False
    notice: Notice | None = None  # a pause is coming, and its programs have been told
    pause_number: int = 0  # the pause its programs know of, until it resumes; 0 = none
    unready: int = 0  # programs that were not ready when it was held
    cancel: Cancel | None = None
    # SM groups on its GPU, in mode mps+green; 0 = what is left, shared with others.
    groups_wanted: int = 0
    set: Span | None = None  # its set on its first GPU; None: sets mean nothing there
    # Part of a plan (divisions.py): the jobs of one part share SMs and take turns; 0 = none.
    part: int = 0
    lease_patience_ns: int = 0  # minimum time its allocations wait, whatever was asked for
    home: GroupKey | None = None  # group into which its own was merged
    is_minimum_kept: bool = True  # the promise of `memory_min_bytes`, if any, holds
    processes: dict[int, Process] = field(default_factory=dict)
    left_ns: int = 0  # when a process of it last left
    left_gpus: frozenset[int] = frozenset()  # GPUs which that process had used
    retired_gpu_ns: int = 0  # of processes that are gone, like all `retired_` fields
    retired_shared_ns: int = 0
    retired_launches: int = 0
    retired_steps: int = 0
    retired_iterations: int = 0
    retired_wait_ns: tuple[int, ...] = (0, 0, 0, 0, 0)
    pauses_ns: int = 0  # gate wait of its threads during earlier pauses
    gate_at_pause_ns: int = 0  # total gate wait of its threads when the current pause began
    retired_refused_by: tuple[int, ...] = (0, 0, 0)
    retired_moved_bytes: tuple[int, ...] = (0, 0)
    retired_moved_ns: tuple[int, ...] = (0, 0)
    used_gpus: frozenset[int] = frozenset()  # by processes that are gone
    peak_bytes: int = 0  # of device memory, all its processes together, as far as sampled
    ended_ns: int = 0
    latency: Latency = field(default_factory=Latency)  # of its requests, for decisions
    served: Served = field(default_factory=Served)  # of its requests, for reports
    gate_waits: Histogram = field(default_factory=lambda: Histogram(WAITS_NS))  # finished ones
    # Counts by Preemption.
    preemptions: list[int] = field(default_factory=lambda: [0] * len(Preemption))
    rhythm: Rhythm | None = None  # of its requests or iterations; None: not known
    rhythm_due_ns: int = 0  # when to compute `rhythm` again
    story: Story = field(default_factory=Story)
    events: Story = field(default_factory=Story)  # what watchers were told
    _own_key: GroupKey = field(init=False)

    def __post_init__(self) -> None:
        group = self.spec.group  # fixed for the job's lifetime
        self._own_key = (self.uid, f"g:{group}" if group else f"j:{self.job_id}")

    @property
    def display_name(self) -> str:
        """`j-7f3a`: how people name the job."""
        return f"j-{self.job_id:x}"

    @property
    def title(self) -> str:
        """The display name, with the job's own name if it has one."""
        name = self.spec.name
        return f"{self.display_name} {name!r}" if name else self.display_name

    @property
    def group_key(self) -> GroupKey:
        """Key of the group it belongs to; a group never crosses uids."""
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
        """Typical iteration length of its slowest process; 0 = not known."""
        return max((p.usage.iteration_ns for p in self.processes.values()), default=0)

    @property
    def scaling(self) -> ScalingCurve | None:
        """How its slowest process scales with SMs; None: not known of any process."""
        known = [p.scaling for p in self.processes.values() if p.scaling is not None]
        return max(known, key=lambda curve: curve.recorded_ns, default=None)

    @property
    def scaling_doubt(self) -> str:
        """Why the scaling is not known; empty: it is."""
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
        """Bytes copied to the host so far, and back."""
        rows = [p.usage.moved_bytes for p in self.processes.values()]
        return totals([self.retired_moved_bytes, *rows])

    @property
    def moved_ns(self) -> tuple[int, ...]:
        """How long these copies took."""
        rows = [p.usage.moved_ns for p in self.processes.values()]
        return totals([self.retired_moved_ns, *rows])

    @property
    def steps(self) -> int:
        """Iteration marks so far."""
        live = (p.usage.steps for p in self.processes.values())
        return total((self.retired_steps, *live))

    @property
    def iterations(self) -> int:
        """Iteration ends so far: per process the marked ones, or else those found."""
        live = (p.usage.steps or p.usage.iterations for p in self.processes.values())
        return total((self.retired_iterations, *live))

    @property
    def refused_by(self) -> tuple[int, ...]:
        """Out-of-memory answers so far, by Refusal."""
        rows = [p.usage.refused_by for p in self.processes.values()]
        return totals([self.retired_refused_by, *rows])

    def waited_ns(self, now_ns: int) -> tuple[int, ...]:
        """Time its threads waited, by WaitReason, without the time it was paused."""
        waited = list(self._all_waits_ns(now_ns))
        here_ns = max(0, waited[WaitReason.GATE] - self.gate_at_pause_ns) if self.paused else 0
        waited[WaitReason.GATE] = max(0, waited[WaitReason.GATE] - self.pauses_ns - here_ns)
        return tuple(waited)

    def _all_waits_ns(self, now_ns: int) -> tuple[int, ...]:
        rows = [p.usage.waited_ns(now_ns) for p in self.processes.values()]
        return totals([self.retired_wait_ns, *rows])

    def pause(self, now_ns: int) -> None:
        """Note that its gates are closed by a person from now on."""
        if not self.paused:
            self.gate_at_pause_ns = self._all_waits_ns(now_ns)[WaitReason.GATE]
        self.paused = True

    def resume(self, now_ns: int) -> None:
        """Note that its gates may open again when its turn comes."""
        waited_ns = self._all_waits_ns(now_ns)[WaitReason.GATE]
        self.pauses_ns += max(0, waited_ns - self.gate_at_pause_ns)
        self.paused = False

    def note_peak(self, usage: Usage, old: Usage) -> None:
        """Raise the job's peak by a sample of one of its processes.

        `usage.peak_bytes` covers a peak between two samples.
        """
        if usage.device_bytes <= old.device_bytes and usage.peak_bytes <= old.peak_bytes:
            return
        held = (p.usage.device_bytes for p in self.processes.values())
        self.peak_bytes = max(self.peak_bytes, usage.peak_bytes, total(held))

    def tell(self, now_ns: int, line: str) -> None:
        """Add a line to the job's story."""
        self.story.tell(now_ns, line)


@dataclass(slots=True, kw_only=True)
class Group:
    """Jobs and their processes, held and released together."""

    key: GroupKey
    number: int  # for the poller, which charges GPU time by group
    arrival: int
    jobs: dict[int, Job] = field(default_factory=dict)
    processes: dict[int, Process] = field(default_factory=dict)
    is_tied: bool = False  # its processes share something on the GPU
    # Facts from the newest samples.
    busy: bool = False
    wants: bool = False
    last_wanted_ns: int = 0
    calls: bool = False  # has work on the GPU, or a thread waiting for anything
    needs_memory: bool = False  # waits for memory that comes with the turn
    misfit_bytes: int = 0  # shortfall of GPU memory for it: a turn would be useless now
    notice: tuple[int, int] | None = None  # to give memory up: step count when given, latest end
    stall_ns: int = 0  # cost of passing the turn on from it, because memory must move
    fill_ns: int = 0  # extra cost this time, because host memory must be filled first
    turn_ns: int = 0  # minimum GPU time of its turn, because of `stall_ns`
    critical_until_ns: int = 0  # one of its processes asks to keep the GPU until then
    preemptible: bool = True  # peers may take the turn in the middle of its iteration
    steps: int = 0  # iteration ends: marked, or else found
    step_served_ns: int = 0  # `served_ns` at the newest of them
    step_cost_ns: int = 0  # GPU time per iteration of late; 0 = not known
    piece: Piece = field(default_factory=Piece)  # current piece of work: an iteration or a request
    backlog: Backlog = field(default_factory=Backlog)  # of its submitted work
    gap_p50_ns: int = 0  # minimum over its processes: the first to submit ends the gap
    short_gaps: bool = False  # too short for others to use a whole window
    bound: Bound = Bound.UNKNOWN  # common to all its processes
    served_ns: int = 0  # GPU time so far, shared intervals split evenly: what turns go by
    charged_ns: int = 0  # the same, shared intervals split by estimate: what it cost the others
    virtual_ns: float = 0.0  # `charged_ns` over weight, as in fair queueing
    weight: float = 1.0  # of its class, or from its share of time (space/asked.py)
    tuned_share: float = 0.0  # share of time that the tuner gives it; 0 = as its class says
    owed_share: float = 0.0  # of its tier's time, where someone asked for a share; 0 = not known
    # Held back before its next iteration (shifts.py) or phase (phase_gate.py).
    is_kept: bool = False
    # The gate.
    open: bool = True
    closed_at_ns: int = 0
    drained: bool = True  # its work from before the gate closed has ended
    hold_since_ns: int | None = None  # since when it is held with work pending
    drain_failures: int = 0
    # Step count when reopened after a failed drain; None: not reopened.
    reopened_steps: int | None = None
    reopened_until_ns: int = 0
    undrainable: bool = False
    undrainable_on: float = 0.0  # `set_size` when it became so
    barred: bool = False  # by the lanes: not admitted, or its lane belongs to another now
    memory_limit_bytes: int = NO_LIMIT  # for all its processes together, by the lanes
    is_beside: bool = False  # lanes run side by side on its GPU
    turns: int = 0  # times its gate opened for it after a hold
    unused_since_ns: int | None = None  # since when it only waits although its gate is open
    dozing: bool = False  # it did so for too long: no claim until it submits something

    @property
    def stands(self) -> Standing:
        """Its processes' totals: submissions so far, and segments that have not completed."""
        usages = [process.usage for process in self.processes.values()]
        return sum(one.launches for one in usages), sum(one.open_segments for one in usages)

    def end_hold(self, now_ns: int) -> None:
        """End its hold, because it was released or has no work left, and record the wait."""
        if self.hold_since_ns is not None:
            for job in self.jobs.values():
                job.gate_waits.add((now_ns - self.hold_since_ns,))
            self.piece.account(self.hold_since_ns, now_ns)
        self.hold_since_ns = None

    def account_wait(self, now_ns: int) -> None:
        """Add the hold so far to the wait of its current piece of work."""
        if self.hold_since_ns is not None:
            self.piece.account(self.hold_since_ns, now_ns)

    def preempt(self, why: Preemption) -> None:
        """Count a preemption: its jobs lose the turn with work left."""
        for job in self.jobs.values():
            job.preemptions[why] += 1

    @property
    def job_class(self) -> JobClass:
        """The most urgent class among its jobs: the others ride along."""
        return min(job.spec.job_class for job in self.jobs.values())

    @property
    def paused(self) -> bool:
        """Tell whether a person paused one of its jobs; a group is never split, so all wait."""
        return any(job.paused for job in self.jobs.values())

    @property
    def is_closed(self) -> bool:
        """Tell whether its gate stays closed whatever others do."""
        return self.barred or self.paused

    @property
    def gpus(self) -> frozenset[int]:
        """The GPUs its processes use."""
        return frozenset().union(*[process.gpus for process in self.processes.values()])

    @property
    def set_size(self) -> float:
        """Smallest set among its jobs, in groups of SMs; inf = no job has a set."""
        return min((job.set.count for job in self.jobs.values() if job.set), default=inf)

    @property
    def title(self) -> str:
        """Short name for stories: the titles of its jobs."""
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
    linger_ns: int = 300_000  # minimum time that a latency job's presence outlives its activity
    linger_limit_ns: int = 2_000_000  # maximum, where its gaps call for it
    idle_grace_ns: int = 1_000_000  # without work for this long, a holder gives up its turn
    drain_ns: int = 250_000_000
    drain_tries: int = 3
    max_hold_ns: int = 20_000_000_000
    # How much a request to keep the GPU can lengthen a turn; 0 = not at all.
    critical_ns: int = 10_000_000
    # Likewise for non-preemptible iterations.
    nonpreemptible_ns: int = 1_000_000_000
    nonpreemptible_classes: frozenset[JobClass] = frozenset()  # default for jobs that do not say
    lane_order: str = "fifo"  # one of lanes.ORDERS: who comes next under the policy `lanes`
    min_share: float = 0.05  # of a waiting tier, over `share_period_ns`
    share_period_ns: int = 1_000_000_000
    throttle_loss: float = 0.03  # allowed slowdown of iterations beside lower classes
    presence_across_users: bool = True
    find_iterations: bool = True  # otherwise only iterations that jobs mark themselves count
    forecast_gaps: bool = True  # otherwise every window is the configured one
    classify_kernels: bool = True  # otherwise what bounds work counts as unknown
    # Size sets of SMs by how jobs scale; otherwise only `--sm` and the like do.
    size_sets: bool = True
    probe_sets: bool = True  # briefly record jobs on fewer SMs to see how they scale
    mps_gpus: frozenset[int] = frozenset()  # where kernels of several processes run side by side
    splits: Mapping[int, Split] = field(default_factory=dict)  # of GPUs in mode mps+green
    unproved: Mapping[int, str] = field(default_factory=dict)  # why other GPUs have no sets
    proving: frozenset[int] = frozenset()  # those being tested for sets right now
    retried: frozenset[int] = frozenset()  # those of `unproved` that will be tested again
    mig_gpus: frozenset[int] = frozenset()  # that are MIG instances
    sm_counts: Mapping[int, int] = field(default_factory=dict)  # of each GPU; 0 = not known
    # For each GPU: mode -> why it cannot work there; empty or missing: it can, or nobody knows.
    why_not: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    gpu_names: Mapping[int, str] = field(default_factory=dict)  # of GPUs not called by their index
    planner: bool = False  # jobs share time, space or both by plan (divisions.py)
    tuner: bool = False  # sizes follow request latencies (tuner.py)
    tuner_window_ns: int = 2_000_000_000
    tuner_band: float = 0.1  # tolerance around an objective within which nothing changes
    memory_quiet_ns: int = 5_000_000_000  # a process that only waits for this long is stuck
    memory_grace_ns: int = 1_000_000_000  # for the driver to reclaim memory of a process that ended
    link_bytes_s: float = 12e9  # to the host and back, until measured
    idle_release_ns: int = 0  # default for jobs that do not say; 0 = never
    host_limit_bytes: int = 64 << 30  # for memory moved out; 0 = none is moved
    file_limit_bytes: int = 0  # where host memory does not suffice; 0 = nothing goes to files
    swappable_classes: frozenset[JobClass] = frozenset()  # default for jobs that do not say
    finished_kept_ns: int = 600_000_000_000
    weights: tuple[tuple[JobClass, int], ...] = (
        (JobClass.LATENCY, 8),
        (JobClass.NORMAL, 4),
        (JobClass.BATCH, 1),
    )

    def idle_release_of(self, spec: JobSpec) -> int:
        """Idle time after which a job gives up its memory; 0 = never."""
        own_ns = spec.idle_release_ns or self.idle_release_ns
        return own_ns if own_ns < NEVER_IDLE_NS else 0

    def may_preempt(self, spec: JobSpec) -> bool:
        """Tell whether the end of a turn may cut into the job's iterations."""
        if spec.preemptible is not None:
            return spec.preemptible
        return spec.job_class not in self.nonpreemptible_classes

    def mode_of(self, gpus: Iterable[int]) -> str:
        """The common mode of these GPUs: a key of `substrate.SUBSTRATES`."""
        used = frozenset(gpus)
        if used and used <= self.mig_gpus:
            return "mig"
        if used and used <= self.splits.keys():
            return "mps+green"
        return "mps" if self.overlaps(used) else "time"

    def overlaps(self, gpus: Iterable[int]) -> bool:
        """Tell whether kernels of several processes run side by side on all of these GPUs."""
        used = frozenset(gpus)
        return bool(used) and used <= self.mps_gpus

    def hindrance(self, gpu: int, mode: str) -> str:
        """Why the mode cannot work on a GPU; empty: no obstacle is known."""
        unproved = self.unproved.get(gpu, "") if mode == "mps+green" else ""
        return self.why_not.get(gpu, {}).get(mode, "") or unproved

    def being_proved(self, gpus: Iterable[int]) -> frozenset[int]:
        """Those of these GPUs (of all, if none is named) whose mode is still being found out."""
        return self.proving & (frozenset(gpus) or frozenset(self.sm_counts))

    @property
    def may_have_sets(self) -> frozenset[int]:
        """GPUs without sets that may get them later."""
        return self.proving | self.retried

    def name_of(self, gpu: int) -> str:
        """The GPU's name for people."""
        return self.gpu_names.get(gpu, str(gpu))

    def weight(self, job_class: JobClass) -> int:
        """Weight of a class: its share of GPU time relative to the other classes."""
        return next(weight for of, weight in self.weights if of is job_class)
