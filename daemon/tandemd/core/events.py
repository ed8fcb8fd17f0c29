"""What can happen (past tense) and what the core may ask for (imperative).

Every event carries `now_ns`, the attach clock's time at which the daemon took it: the core has no
clock of its own. Actions are performed by the loop, in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tandemd.core.curves.curves import Curve
from tandemd.core.memory.ceilings import Ceiling
from tandemd.core.model import Cancel, JobClass, JobSpec, Mix, SmSet, Usage
from tandemd.core.planner.plans import Scene, Valued
from tandemd.core.space.scaling import Curve as ScalingCurve
from tandemd.core.tuner.latency import RequestKind
from tandemd.core.turns.interference import Trial
from tandemd.core.watchdog.finding import Finding

# --------------------------------------------------------------------------------- events


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRegistered:
    """`tandem run` announced a job; it lives while its process or any attached one lives."""

    now_ns: int
    job_id: int
    uid: int
    spec: JobSpec
    meant_gpus: frozenset[int] = frozenset()  # that it may use
    told: str = ""  # what it is to know from the start


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessAttached:
    """A process said hello.

    An unknown job id (a job from before a restart, or a bare process) makes the job from `spec`; a
    known job keeps its own.
    """

    now_ns: int
    process_id: int
    job_id: int
    uid: int
    gpu: int
    spec: JobSpec
    takes_files: bool = False  # `OfferFile` may be said to it
    gives_back: bool = False  # and `TakeBack`
    has_set: bool = False  # from a daemon before this one, or is on the whole GPU for good
    cancel: Cancel | None = None  # of its job, that a daemon before this one began
    mps_percent: float = 0.0  # of the SMs, as its environment says it to MPS; 0 = not known


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessMapped:
    """The process mapped its pages; others may look at its presence from now on."""

    now_ns: int
    process_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessExited:
    """The process closed its lease or died."""

    now_ns: int
    process_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HandleShared:
    """The process exported or imported something on the GPU.

    Processes of one uid that say the same key may wait for each other.
    """

    now_ns: int
    process_id: int
    key: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuAdded:
    """The process has work on another GPU, too."""

    now_ns: int
    process_id: int
    gpu: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobExited:
    """The process that registered the job is gone."""

    now_ns: int
    job_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTurnedAway:
    """A process of the job was refused, and runs unshared."""

    now_ns: int
    job_id: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageSampled:
    """Newest figures of the processes that changed since the last sample."""

    now_ns: int
    samples: tuple[Usage, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestsServed:
    """Requests of a process ended; how long each took, in order of their ends."""

    now_ns: int
    process_id: int
    kind: RequestKind
    durations_ns: tuple[int, ...]
    at_once: int = 0  # the most marked ones that were under way meanwhile
    said_ns: tuple[int, ...] = ()  # what the mark of each says that it is to take, 0 = nothing
    held_ns: tuple[int, ...] = ()  # for how much of each its process was held; empty = none was


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkClassified:
    """What the work of a process is bound by was told from a recording."""

    now_ns: int
    process_id: int
    mix: Mix


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveRecorded:
    """What an iteration of a process holds of the GPU as its work gets done was recorded."""

    now_ns: int
    process_id: int
    curve: Curve


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingTold:
    """How a process scales with SMs was told from a recording, or could not be, and why."""

    now_ns: int
    process_id: int
    curve: ScalingCurve | None
    doubt: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryAudited:
    """What the driver says that processes hold, beside what they say themselves."""

    now_ns: int
    # Process id, bytes on each GPU that it is on; none: the driver names others and not this one.
    held_bytes: tuple[tuple[int, tuple[int, ...]], ...]
    is_complete: bool = True  # the driver said all of every GPU
    # What processes said at that time, newer than their usage: bytes on all GPUs, and the same with
    # what they were asking the driver for.
    claims: Mapping[int, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessCheckpointed:
    """The driver saved a process to the host, or brought it back; or could not."""

    now_ns: int
    process_id: int
    away: bool  # what was asked for
    problem: str = ""  # why not, for people


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingBegan:
    """The watchdog found that something is the matter with the job."""

    now_ns: int
    job_id: int
    finding: Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingEnded:
    """It no longer is; `finding` is what was found last."""

    now_ns: int
    job_id: int
    finding: Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class JobUpdated:
    """Somebody allowed to do so changed what the job may have."""

    now_ns: int
    job_id: int
    spec: JobSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPaused:
    """A person paused the job; programs of it that listen have so long before it is held."""

    now_ns: int
    job_id: int
    grace_ns: int = 0
    # Where a daemon before this one paused it: the number that its programs know; 0 = they went on
    # meanwhile, and are to be told anew. None: nobody did, or nobody listened.
    told: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResumed:
    """A person let the job go on."""

    now_ns: int
    job_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCancelled:
    """Somebody ends the job: by this signal, and by SIGKILL after the grace."""

    now_ns: int
    job_id: int
    signal: str  # of `cancels.SIGNALS`
    grace_ns: int  # 0 = SIGKILL at once


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChanged:
    """Another policy decides from now on."""

    now_ns: int
    policy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CeilingSet:
    """What all jobs of a user may hold of each GPU's memory is something else from now on."""

    now_ns: int
    uid: int
    ceiling: Ceiling


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked:
    """Time passed: a `WakeAt` was reached, or a round went by without news."""

    now_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRefused:
    """The host has not the memory that was to come with an order."""

    now_ns: int
    process_id: int
    pool: int  # that order


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolMade:
    """The memory that came with an order was made, which took so long of the machine's time."""

    now_ns: int
    process_id: int
    size_bytes: int
    took_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolCopied:
    """A `CopyPool` has ended; `why_not` is empty where the file has everything."""

    now_ns: int
    process_id: int
    pool: int
    why_not: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFound:
    """The answer to `FindPlan`."""

    now_ns: int
    gpus: frozenset[int]
    number: int  # of the question
    found: tuple[Valued, ...]  # the best plan of each kind, best first; empty: it failed
    failure: str = ""  # why


@dataclass(frozen=True, slots=True, kw_only=True)
class SubstrateFailed:
    """Something that jobs on these GPUs ran on has ended, or is there again; `what` says which."""

    now_ns: int
    since_ns: int  # when it may have been, at the earliest
    gpus: frozenset[int]
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MpsClientsListed:
    """Whom MPS on these GPUs names as its clients; all others there are none."""

    now_ns: int
    gpus: frozenset[int]
    process_ids: frozenset[int]


Event = (
    JobRegistered
    | ProcessAttached
    | ProcessMapped
    | ProcessExited
    | HandleShared
    | GpuAdded
    | JobExited
    | JobTurnedAway
    | UsageSampled
    | RequestsServed
    | WorkClassified
    | CurveRecorded
    | ScalingTold
    | MemoryAudited
    | ProcessCheckpointed
    | PoolRefused
    | PoolMade
    | PoolCopied
    | FindingBegan
    | FindingEnded
    | JobUpdated
    | JobPaused
    | JobResumed
    | JobCancelled
    | PolicyChanged
    | PlanFound
    | CeilingSet
    | SubstrateFailed
    | MpsClientsListed
    | Ticked
)

# -------------------------------------------------------------------------------- actions


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenGates:
    """Let the processes submit work."""

    process_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseGates:
    """Hold the processes at their next submission."""

    process_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetWindow:
    """At most `segments` open segments at once; 0 = no limit."""

    process_id: int
    segments: int
    segment_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPresence:
    """Before a launch the process looks at these processes and yields to the busy ones."""

    process_id: int
    looks_at: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetHonourPresence:
    """Whether the processes yield to busy presence; off while their class is owed time."""

    process_ids: tuple[int, ...]
    honour: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TellPause:
    """A program that listens is to know of a pause that comes or is; 0: there is none."""

    process_id: int
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetMemoryLimit:
    """Device memory the process may hold; NO_LIMIT = all of it."""

    process_id: int
    limit_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetMemoryLease:
    """Device memory the process may hold for now, within its limit; NO_LIMIT = all of that."""

    process_id: int
    lease_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetStepLimit:
    """Stop the process at the mark that ends its so manyth step, or a later one; 0 = never."""

    process_id: int
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPhaseLimit:
    """Stop the process at the mark that begins its so manyth phase, or a later one; 0 = never.

    A process has one limit of marks: this or that of steps, whichever was set last.
    """

    process_id: int
    phases: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetMemoryWait:
    """How long an allocation of the process may wait for memory; 0 = not at all."""

    process_id: int
    wait_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetMemoryPlace:
    """Where the process stands in the line for device memory.

    Its request `ticket` may try, once in each round, or is refused; 0 = none of its requests may.
    """

    process_id: int
    ticket: int
    round: int
    is_refused: bool
    line_ahead: bool  # others wait: its next request joins the line before the driver is asked


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveMemory:
    """Have no more than `target_bytes` of what can be moved on the device; NO_LIMIT = all of it.

    The process says in its usage when the order with this number has ended. Before, it gets
    `pool_bytes` more of host memory.
    """

    process_id: int
    order: int
    target_bytes: int
    pool_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointProcess:
    """Have the driver save the process to the host, or bring it back if it was saved.

    `ProcessCheckpointed` says how that ended.
    """

    process_id: int
    away: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SetLane:
    """Whether a closed gate holds the allocations of the process, too."""

    process_id: int
    holds: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPool:
    """Copy the host memory that came with order `pool` to a file; `PoolCopied` says how it went."""

    process_id: int
    pool: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferFile:
    """Have the process take that file, unless it moved memory after the order `since`.

    It says in its usage when `order` has ended, and whether it has.
    """

    process_id: int
    pool: int
    order: int
    since: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeBack:
    """Have the process give back the memory that came with order `pool`, if nothing is in it.

    Not if it moved memory after the order `since`. It says in its usage when `order` has ended, and
    whether it has.
    """

    process_id: int
    pool: int
    order: int
    since: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DropPool:
    """The process has the file, or needs none: the memory that came with order `pool` is free."""

    process_id: int
    pool: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DropFile:
    """The file for that memory is of no use, or not any more."""

    process_id: int
    pool: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetSms:
    """Which SMs the process is to use; its work goes there from one submission to the next."""

    process_id: int
    set: SmSet
    turn: int  # unlike that of all tellings of late, 1 or more: it may be told a set once more


@dataclass(frozen=True, slots=True, kw_only=True)
class FindPlan:
    """Say how these jobs had best share a GPU: send `PlanFound`. It takes milliseconds."""

    gpus: frozenset[int]  # whose jobs they are
    number: int
    scene: Scene  # for any thread


@dataclass(frozen=True, slots=True, kw_only=True)
class SetClass:
    """The class the process is treated as."""

    process_id: int
    job_class: JobClass


@dataclass(frozen=True, slots=True, kw_only=True)
class SetLinger:
    """How long the presence of a latency-class process outlives its activity.

    The process may tune it from the gaps between its requests, up to `limit_ns`.
    """

    process_id: int
    linger_ns: int
    limit_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetProcess:
    """Give back everything of the process."""

    process_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargeGroup:
    """From now on the processes' GPU time is that of the group with this number."""

    process_ids: tuple[int, ...]
    group: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnounceJob:
    """Tell watchers that something about the job changed: registered, attached, state, exited.."""

    job_id: int
    kind: str
    rule: str = ""  # of a finding


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalJob:
    """Send a signal to the processes of the job, the one that registered it included."""

    job_id: int
    signal: str  # of `cancels.SIGNALS`
    process_id: int | None = None  # this one alone


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepTrials:
    """Remember what was measured on the GPU, also when the daemon has ended."""

    gpu: int
    trials: tuple[Trial, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeAt:
    """Send `Ticked` no later than this; replaces any earlier wish."""

    at_ns: int


Action = (
    OpenGates
    | CloseGates
    | TellPause
    | SetWindow
    | SetPresence
    | SetHonourPresence
    | SetMemoryLimit
    | SetMemoryLease
    | SetStepLimit
    | SetPhaseLimit
    | SetMemoryWait
    | SetMemoryPlace
    | MoveMemory
    | CheckpointProcess
    | SetLane
    | CopyPool
    | OfferFile
    | TakeBack
    | DropPool
    | DropFile
    | SetSms
    | FindPlan
    | SetClass
    | SetLinger
    | ForgetProcess
    | ChargeGroup
    | AnnounceJob
    | SignalJob
    | KeepTrials
    | WakeAt
)
