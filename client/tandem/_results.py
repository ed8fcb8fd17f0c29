"""The daemon's answers as plain values, units in their names; None is "not said" or "no limit"."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process of a job."""

    pid: int
    attach_time_ns: int  # since 1970
    device_bytes: int
    ungated: bool  # runs without the daemon's gate (fail-open)
    dropped_records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A problem with a job that the daemon's watchdog found and that persists."""

    rule: str  # stall, starvation, leak, launch-bound, thrash
    since_ns: int  # since 1970
    what: str
    why: str  # why it matters
    advice: str  # what to do
    facts: dict[str, float]  # names carry their unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job: what was asked for it, and how it is doing."""

    name: str  # "j-7f3a"
    display_name: str
    uid: int
    user: str
    command: str  # empty if the caller may not see it
    gpu: str  # index; empty before the first process attached
    group: str
    priority: str  # latency, normal, batch
    memory_quota_bytes: int | None
    memory_min_bytes: int | None
    wait_memory_ns: int | None  # how long an allocation may wait for memory
    sm_percent: int | None
    sm_count: int | None  # in place of sm_percent
    isolation: str  # as asked for: time, mps, mps+green, mig; empty = any
    mode: str  # of its GPU, in the same words
    slo_p99_ns: int | None
    preemptible: bool | None
    state: str  # starting, running, waiting, paused, swapped, idle, detached, exited
    reason: str
    resident_bytes: int
    swapped_bytes: int
    filed_bytes: int  # part of swapped_bytes: in files instead of host memory
    memory_wait_bytes: int  # size of the first allocation that waits; 0 = none waits
    memory_wait_place: int  # of that allocation in the queue, from 1
    gpu_time_ns: int
    gpu_time_estimated: bool  # part of it was split between jobs that ran together
    wait_time_ns: int  # its threads waited for others; excludes waits for its own full window
    launches: int
    steps: int
    share_ratio: float  # of GPU time in the last second, 0..1
    share_target_ratio: float | None  # what its sm entitles it to of that, while it has work
    energy_mj: int | None = None  # attributed, not measured; None = not known, or not yet
    sms: int | None = None  # SMs of its first GPU that its kernels may use now; None = not known
    set_groups: tuple[int, ...] | None = None  # groups of SMs in its set, by number; None = no set
    set_group_sms: int | None = None  # SMs in each of these groups
    request_p99_ns: int | None = None  # over the last half minute; None = no requests seen
    requests: int = 0  # how many requests that covers
    marked_p99_ns: int | None = None  # objective set by its marks (tandem.slo); reported only
    create_time_ns: int  # since 1970
    processes: tuple[Process, ...]
    etag: str
    findings: tuple[Finding, ...] = ()
    memory_percent: int | None = None  # of its GPU, until it is on one; then memory_quota_bytes
    idle_release_ns: int | None = None  # it releases its memory after being idle this long
    persistent_bytes: int | None = None  # its promise to the policy lanes
    ephemeral_bytes: int | None = None
    swappable: bool = False  # its memory may be moved to the host
    checkpoint: bool = False  # the same, but only as a whole, while it is paused
    pause_unready: int = 0  # programs that were not ready when it was paused
    pause_in_ns: int | None = None  # its programs were told; time until it is held at the latest
    warnings: tuple[str, ...] = ()  # from `set`: what has no effect, and why


@dataclass(frozen=True, slots=True, kw_only=True)
class PastJob:
    """A job that has ended, counted from when it came to the daemon."""

    name: str  # "j-7f3a"
    display_name: str
    uid: int
    user: str  # the name of the uid at that time
    priority: str  # latency, normal, batch: the last one it had
    group: str
    gpus: tuple[str, ...]  # GPUs it used, by their names in `tandem gpus` at that time
    command: str  # empty if the caller may not see it
    begin_time_ns: int  # since 1970
    end_time_ns: int
    outcome: str  # ended, cancelled
    gpu_time_ns: int
    gpu_time_estimated: bool  # part of it was split between jobs that ran together
    wait_time_ns: int  # its threads waited for others; excludes waits for its own full window
    peak_bytes: int  # most device memory that it had allocated
    launches: int
    iterations: int  # marked, or else detected
    refusals: int  # how often it was told out of memory
    findings: tuple[str, ...]  # watchdog rules that found something
    energy_mj: int | None = None  # as in Job


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent:
    """One change of a job."""

    time_ns: int  # since 1970
    # A state, or registered, attached, updated, pausing, cancelled, finding, finding-over.
    kind: str
    job: Job
    times: int = 1  # for past events: how often so far; this is the last one
    rule: str = ""  # for finding and finding-over: the watchdog's rule


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceEvent:
    """One event in a trace of what jobs do on the GPUs."""

    # turn (the jobs have the turn from then on; no jobs: nobody has work there), wait (a thread was
    # held back until then), step (an iteration ended), phase-begin and -end, request-begin and
    # -end, lost (part of what the process recorded in the `duration_ns` before then is missing).
    kind: str
    time_ns: int  # since 1970
    jobs: tuple[str, ...]  # empty string: a job that the caller may not see
    gpus: tuple[int, ...]
    part: int = 0  # of turns: the part of the GPUs, where a plan divides them; 0 = all
    pid: int = 0
    thread: int = 0
    id: int = 0  # of a phase or request
    duration_ns: int = 0  # of a wait, or the span in which something was lost
    reason: str = ""  # of a wait: gate, window, presence, memory
    lost_records: int = 0  # of any kind: an upper bound for lost waits and marks


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """How long a job has waited for one reason since it began."""

    reason: str  # gate, window, presence, memory
    total_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a job runs or waits."""

    job: str
    summary: str
    lines: tuple[str, ...]
    mode: str  # time, mps, mps+green, mig
    policy: str
    waits: tuple[Wait, ...]
    story: tuple[str, ...]  # the newest decisions about the job, oldest first
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchMemory:
    """The memory that a launch touches, as far as its parameters tell."""

    accesses: tuple[tuple[int, int, bool], ...]  # address, bytes, whether it only reads
    is_all: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What one process did on the GPU, from the end of one iteration to the end of another."""

    pid: int
    gpus: tuple[int, ...]
    begin_ns: int  # on the daemon's clock, like the records
    end_ns: int
    first_iteration: int  # number of iterations that ended before
    iterations: int  # whole iterations inside; 0 = none is known
    lost_records: int
    is_cut: bool  # the window extends beyond the last record
    records: bytes  # 64 bytes each, see docs/shared-memory.md; ordered by when they took effect
    kernels: tuple[tuple[int, str], ...]  # handle as in the records, and mangled name
    # What a launch touches, by sample number (the low half of the value in a sampled launch's
    # record).
    launches: dict[int, LaunchMemory] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetProof:
    """The result of checking that two processes' sets of SMs are disjoint on a GPU."""

    under_way: bool  # no result yet
    groups: int  # of SMs, from which sets are made; 0 = there are none
    group_sms: int  # SMs in each
    problem: str  # why there are no sets


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU as the daemon sees it."""

    index: int  # unique
    uuid: str
    product_name: str
    mode: str
    memory_total_bytes: int
    memory_used_bytes: int
    sm_count: int
    busy_ratio: float  # over the last second, 0..1
    software: bool
    name: str  # the index; for a MIG instance GPU:INSTANCE, such as 0:2
    sets: SetProof | None = None  # if mode mps+green is configured and MPS runs
    not_had: str = ""  # why it is not in the configured mode; empty: it is, or none is configured
    unmanaged_processes: int | None = None  # that compute there without the daemon; None: not known
    draining: bool = False  # no job is started there
    memory_reserved_bytes: int = 0  # part of memory_total_bytes that no job gets


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingCurve:
    """Iteration length as a function of the number of SMs."""

    sm_counts: tuple[int, ...]  # ascending
    iteration_ns: tuple[int, ...]  # one for each sm_counts
    source: str  # predicted; or probed: fitted to measurements on other numbers of SMs
    gamma: float  # how little the number of SMs matters to its kernels, 0..1
    recorded_sms: int  # number of SMs on which the underlying record was made
    recorded_ns: int  # iteration length there
    knee_sms: int  # beyond it each further SM gains less


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPart:
    """A job's part of one GPU."""

    job: str
    display_name: str
    priority: str
    asked: str  # `30%`, `40 SMs`; empty: nothing
    asked_sms: int | None  # the same in SMs
    given_sms: int | None  # SMs that its kernels may use
    owed_ratio: float | None  # share of the time of the jobs it takes turns with
    required_sms: int | None  # SMs that keep its latency limit
    proposed_sms: int  # from its curve and its limit; 0 = what others leave
    why: str  # why proposed_sms is that many
    why_no_set: str  # why none, though its GPU has sets: nothing is proposed; empty: it has one
    scaling: ScalingCurve | None
    doubt: str  # why there is no curve
    predicted_ns: int | None  # for given_sms, predicted before it ran on them
    measured_ns: int | None  # current iteration length, without pauses between requests


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """How a GPU is divided among the jobs the caller may see."""

    gpu: Gpu
    part_sms: int | None  # the smallest possible part
    jobs: tuple[JobPart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJob:
    """What a plan is expected to mean for a job."""

    job: str
    display_name: str
    sms: int
    shares_with: tuple[str, ...]  # jobs it takes turns with on these SMs
    progress_ratio: float  # 1 = as if it were alone on the whole GPU
    p99_ns: int | None  # of its requests; None: it has none, or cannot keep up with them
    misses: bool  # whether it misses its objective
    slowdown: float  # caused by jobs on other SMs, at least 1
    # Measured under the plan in force; None: too little data yet, or the plan is not in force.
    measured_progress_ratio: float | None = None
    measured_p99_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A way to share a GPU."""

    kind: str  # time, space, time and space
    needs: str  # its requirements
    progress: float  # weighted sum over all jobs: 0 to their number
    missed: int  # number of objectives missed
    jobs: tuple[PlannedJob, ...]
    in_force: bool = False  # the GPU is shared like this now


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPlans:
    """The plan in force on a GPU, if any, and the best plan of each kind, best first."""

    gpu: Gpu
    plans: tuple[Plan, ...]
    notes: tuple[str, ...]  # what is not known, and the errors of earlier forecasts
    planner: str = ""  # why this plan is in force, or why none is


@dataclass(frozen=True, slots=True, kw_only=True)
class MigInstance:
    """One MIG instance of a GPU."""

    name: str | None  # such as "0:1"; None: it does not exist yet
    profile: str  # such as "1g.18gb"

    def __str__(self) -> str:
        """The name and the profile, for display."""
        return f"{self.name} ({self.profile})" if self.name else self.profile


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuCut:
    """What was done, or would be done, to cut a GPU by MIG."""

    done: bool  # False: this was a dry run
    destroyed: tuple[MigInstance, ...]
    created: tuple[MigInstance, ...]
    turned: str  # MIG as a whole: on, off; empty: unchanged
    users: tuple[str, ...]  # who uses the GPU and so prevents it, if it was not done


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPoint:
    """The GPU memory that a job held from a point in time on."""

    time_ns: int  # since 1970
    resident_bytes: int
    swapped_bytes: int
    filed_bytes: int  # part of swapped_bytes: in files
    waiting_bytes: int  # size of its waiting allocations
    gpu_time_ns: int  # since the job began
    sm_time_ns: int = 0  # SMs its kernels held times duration, from its records, since it began


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCurve:
    """A job's memory on one GPU over the last minutes, oldest first."""

    job: str
    display_name: str
    gpu: int  # index
    points: tuple[MemoryPoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryHistory:
    """The memory curves of all jobs."""

    end_ns: int  # now, since 1970
    curves: tuple[MemoryCurve, ...]
    gpus: tuple[Gpu, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What the caller's jobs may have, and the configuration keys that say so."""

    max_class: str  # latency, normal, batch
    max_class_key: str | None  # None: no limit
    max_memory_bytes: int | None  # for all jobs together, on each GPU
    max_memory_percent: int | None  # the same as a share; the larger counts; both None = no limit
    max_memory_key: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The state of the daemon itself."""

    version: str
    pid: int
    uptime_ns: int
    policy: str
    jobs: int
    processes: int
    runtime_dir: str
    clock: str  # monotonic, softgpu-virtual
    gpus: tuple[Gpu, ...]
    allowance: Allowance | None = None  # None: not sent, by an older daemon
    # Why a restart would lose what the state file is for; None: it would not, or none is wanted.
    state_problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The policy that decides who computes when."""

    name: str
    description: str
    available: tuple[str, ...]  # names of all policies
