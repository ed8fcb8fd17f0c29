"""Events, the facts that the core is told (past tense), and actions, its requests (imperative).

Every event carries `now_ns`, the attach clock's time at which the daemon took it: the core has no
clock of its own. The loop performs actions in order.
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
    """`tandem run` announced a job; it lives as long as that process or any attached one."""

    now_ns: int
    job_id: int
    uid: int
    spec: JobSpec
    meant_gpus: frozenset[int] = frozenset()  # GPUs that it may use
    told: str = ""  # first thing to tell in its story; empty = nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessAttached:
    """A process said hello.

    If the job id is unknown (a job from before a restart, or a bare process), `spec` defines the
    job; a known job keeps its own.
    """

    now_ns: int
    process_id: int
    job_id: int
    uid: int
    gpu: int
    spec: JobSpec
    takes_files: bool = False  # it understands `OfferFile`
    gives_back: bool = False  # it understands `TakeBack`
    # It got a set from an earlier daemon, or stays on the whole GPU for good.
    has_set: bool = False
    cancel: Cancel | None = None  # a cancellation of its job that an earlier daemon began
    mps_percent: float = 0.0  # its share of the SMs by its environment's MPS setting; 0 = not known


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessMapped:
    """The process mapped its pages; from now on others may look at its presence."""

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

    Processes of one uid that report the same key may wait for each other.
    """

    now_ns: int
    process_id: int
    key: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuAdded:
    """The process has put work on another GPU as well."""

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
    """A process of the job was refused and runs unshared."""

    now_ns: int
    job_id: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageSampled:
    """The newest figures of the processes that changed since the last sample."""

    now_ns: int
    samples: tuple[Usage, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestsServed:
    """Requests of a process ended; gives the duration of each, in order of their ends."""

    now_ns: int
    process_id: int
    kind: RequestKind
    durations_ns: tuple[int, ...]
    at_once: int = 0  # most marked requests that were in flight at once meanwhile
    said_ns: tuple[int, ...] = ()  # target duration that each request's mark states; 0 = none
    held_ns: tuple[int, ...] = ()  # how long the process was held during each; empty = never


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkClassified:
    """A recording showed what the work of a process is bound by."""

    now_ns: int
    process_id: int
    mix: Mix


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveRecorded:
    """An iteration was recorded: the GPU memory the process holds as its work proceeds."""

    now_ns: int
    process_id: int
    curve: Curve


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingTold:
    """A recording showed how a process scales with SMs, or why that cannot be told."""

    now_ns: int
    process_id: int
    curve: ScalingCurve | None
    doubt: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryAudited:
    """What the driver says that processes hold, next to what they claim themselves."""

    now_ns: int
    # Process id, and bytes on each of its GPUs; no bytes: the driver lists other processes but not
    # this one.

    held_bytes: tuple[tuple[int, tuple[int, ...]], ...]
    is_complete: bool = True  # the driver listed everything on every GPU
    # What processes claimed at that time, which is newer than their usage: bytes on all GPUs, and
    # that plus what they were requesting from the driver.
    claims: Mapping[int, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessCheckpointed:
    """The driver saved a process to the host or restored it, or failed to."""

    now_ns: int
    process_id: int
    away: bool  # True: the request was to save it; False: to restore it
    problem: str = ""  # why it failed, for people; empty = it did not


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingBegan:
    """The watchdog found something wrong with the job."""

    now_ns: int
    job_id: int
    finding: Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingEnded:
    """A finding no longer holds; `finding` is its last version."""

    now_ns: int
    job_id: int
    finding: Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class JobUpdated:
    """Somebody with the right to do so changed what the job may have."""

    now_ns: int
    job_id: int
    spec: JobSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPaused:
    """A person paused the job; its programs that listen get `grace_ns` before it is held."""

    now_ns: int
    job_id: int
    grace_ns: int = 0
    # If an earlier daemon paused the job: the number of the pause that its programs know; 0 = they
    # ran on meanwhile and must be told again. None: none paused it, or nobody listened.
    told: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResumed:
    """A person let the job continue."""

    now_ns: int
    job_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCancelled:
    """Somebody ends the job: with this signal, and with SIGKILL after the grace."""

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
    """The limit on each GPU's memory for all jobs of a user together changed."""

    now_ns: int
    uid: int
    ceiling: Ceiling


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked:
    """Time passed: a `WakeAt` was reached, or a round went by without news."""

    now_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRefused:
    """The host lacks the memory that an order was to bring."""

    now_ns: int
    process_id: int
    pool: int  # number of that order


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolMade:
    """The memory for an order was allocated, which took `took_ns` of the machine's time."""

    now_ns: int
    process_id: int
    size_bytes: int
    took_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolCopied:
    """A `CopyPool` ended; `why_not` is empty if the file holds everything."""

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
    """Something that jobs on these GPUs depend on ended or is back; `what` names it."""

    now_ns: int
    since_ns: int  # earliest time at which it may have happened
    gpus: frozenset[int]
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MpsClientsListed:
    """The clients that MPS lists on these GPUs; no other process there is one."""

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
    """Allow the process at most `segments` open segments at once; 0 = no limit."""

    process_id: int
    segments: int
    segment_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPresence:
    """Set whose presence the process checks before each launch, to yield to busy ones."""

    process_id: int
    looks_at: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetHonourPresence:
    """Set whether processes yield to busy presence; off while their class is owed time."""

    process_ids: tuple[int, ...]
    honour: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TellPause:
    """Tell a program that listens about a coming or current pause; 0: there is none."""

    process_id: int
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetMemoryLimit:
    """Limit the device memory that the process may hold; NO_LIMIT = no limit."""

    process_id: int
    limit_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetMemoryLease:
    """Limit the device memory held for now, within the memory limit; NO_LIMIT = no lease."""

    process_id: int
    lease_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetStepLimit:
    """Stop the process at the mark ending step number `steps`, or a later one; 0 = never."""

    process_id: int
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPhaseLimit:
    """Stop the process at the mark beginning phase number `phases`, or a later one; 0 = never.

    A process has a single limit on marks: this one or that on steps, whichever was set last.
    """

    process_id: int
    phases: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetMemoryWait:
    """Set how long an allocation of the process may wait for memory; 0 = not at all."""

    process_id: int
    wait_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetMemoryPlace:
    """Set the process's place in the line for device memory.

    Its request `ticket` may try once in each round, or is refused; 0 = none of its requests may
    try.
    """

    process_id: int
    ticket: int
    round: int
    is_refused: bool
    line_ahead: bool  # others wait: its next request joins the line before asking the driver


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveMemory:
    """Keep at most `target_bytes` of the movable memory on the device; NO_LIMIT = all of it.

    The process reports in its usage when the order with this number has ended. Before the order, it
    gets `pool_bytes` more of host memory.
    """

    process_id: int
    order: int
    target_bytes: int
    pool_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointProcess:
    """Have the driver save the process to the host, or restore a saved one.

    `ProcessCheckpointed` reports the outcome.
    """

    process_id: int
    away: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SetLane:
    """Set whether a closed gate holds the process's allocations as well."""

    process_id: int
    holds: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPool:
    """Copy the host memory of order `pool` to a file; `PoolCopied` reports the outcome."""

    process_id: int
    pool: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferFile:
    """Offer the process the file copy of `pool`, void if it moved memory after order `since`.

    Its usage reports when `order` has ended and whether the process took the file.
    """

    process_id: int
    pool: int
    order: int
    since: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeBack:
    """Have the process give back the memory that came with order `pool`, if it is empty.

    The process ignores this if it moved memory after order `since`. Its usage reports when `order`
    has ended and whether the memory was given back.
    """

    process_id: int
    pool: int
    order: int
    since: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DropPool:
    """Free the memory of order `pool`: the process has the file or needs none."""

    process_id: int
    pool: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DropFile:
    """Drop the file for that memory: it is useless, or no longer needed."""

    process_id: int
    pool: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetSms:
    """Set the SMs that the process is to use; its work moves there between two submissions."""

    process_id: int
    set: SmSet
    turn: int  # at least 1 and unlike recent ones, since a set may be assigned again


@dataclass(frozen=True, slots=True, kw_only=True)
class FindPlan:
    """Find how these jobs best share a GPU and send `PlanFound`; takes milliseconds."""

    gpus: frozenset[int]  # the GPUs of these jobs
    number: int
    scene: Scene  # safe to read from any thread


@dataclass(frozen=True, slots=True, kw_only=True)
class SetClass:
    """Set the class that the process is treated as."""

    process_id: int
    job_class: JobClass


@dataclass(frozen=True, slots=True, kw_only=True)
class SetLinger:
    """Set how long the presence of a latency-class process outlives its activity.

    The process may tune it from the gaps between its requests, up to `limit_ns`.
    """

    process_id: int
    linger_ns: int
    limit_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetProcess:
    """Release everything kept for the process."""

    process_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargeGroup:
    """Charge the processes' GPU time to the group with this number from now on."""

    process_ids: tuple[int, ...]
    group: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnounceJob:
    """Tell watchers that something about the job changed: registered, attached, state, exited.."""

    job_id: int
    kind: str
    rule: str = ""  # the rule of a finding


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalJob:
    """Send a signal to the processes of the job, the one that registered it included."""

    job_id: int
    signal: str  # of `cancels.SIGNALS`
    process_id: int | None = None  # send it to this process only


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepTrials:
    """Remember what was measured on the GPU, beyond the daemon's lifetime."""

    gpu: int
    trials: tuple[Trial, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeAt:
    """Send `Ticked` no later than this; replaces any earlier `WakeAt`."""

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
