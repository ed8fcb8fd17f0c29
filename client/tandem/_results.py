"""What the daemon tells: plain values, units in their names; None is "not said" or "no limit"."""

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
    """What the daemon's watchdog found about a job and still finds."""

    rule: str  # stall, starvation, leak, launch-bound, thrash
    since_ns: int  # since 1970
    what: str
    why: str  # it matters
    advice: str  # what to do
    facts: dict[str, float]  # names carry their unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job: what was asked for it, and how it fares."""

    name: str  # "j-7f3a"
    display_name: str
    uid: int
    user: str
    command: str  # empty when the caller may not see it
    gpu: str  # index, empty before the first process attached
    group: str
    priority: str  # latency, normal, batch
    memory_quota_bytes: int | None
    memory_min_bytes: int | None
    wait_memory_ns: int | None  # how long an allocation may wait for memory
    sm_percent: int | None
    sm_count: int | None  # instead
    isolation: str  # as asked: time, mps, mps+green, mig; empty = any
    mode: str  # of its GPU, likewise
    slo_p99_ns: int | None
    preemptible: bool | None
    state: str  # starting, running, waiting, paused, swapped, idle, detached, exited
    reason: str
    resident_bytes: int
    swapped_bytes: int
    filed_bytes: int  # of these, in files instead of the host's memory
    memory_wait_bytes: int  # what its first allocation in line waits for; 0 = none waits
    memory_wait_place: int  # in line, from 1
    gpu_time_ns: int
    gpu_time_estimated: bool  # part of it was split between jobs that ran together
    wait_time_ns: int  # of its threads, for others: not while only its own window was full
    launches: int
    steps: int
    share_ratio: float  # of GPU time in the last second, 0..1
    share_target_ratio: float | None  # of the same time, what its sm owes it while it has work
    energy_mj: int | None = None  # attributed to it, not measured; None = not known, or not yet
    sms: int | None = None  # of its first GPU, that its kernels may use now; None = not known
    set_groups: tuple[int, ...] | None = None  # of SMs, by number: its set; None = it has none
    set_group_sms: int | None = None  # SMs of each of these
    request_p99_ns: int | None = None  # of the requests of the last half minute; None = saw none
    requests: int = 0  # of how many that is
    marked_p99_ns: int | None = None  # what its marks (tandem.slo) allow it to be; reported only
    create_time_ns: int  # since 1970
    processes: tuple[Process, ...]
    etag: str
    findings: tuple[Finding, ...] = ()
    memory_percent: int | None = None  # of its GPU, until it is on one: then memory_quota_bytes
    idle_release_ns: int | None = None  # idle for so long it gives its memory up
    persistent_bytes: int | None = None  # what it promised to the policy lanes
    ephemeral_bytes: int | None = None
    swappable: bool = False  # its memory may be moved to the host
    checkpoint: bool = False  # likewise as a whole, while it is paused
    pause_unready: int = 0  # programs that were not when it was paused
    pause_in_ns: int | None = None  # its programs were told; it is held then at the latest
    warnings: tuple[str, ...] = ()  # of a `set`: what has no effect, and why


@dataclass(frozen=True, slots=True, kw_only=True)
class PastJob:
    """A job that has ended, from when it came to the daemon."""

    name: str  # "j-7f3a"
    display_name: str
    uid: int
    user: str  # as the uid was called then
    priority: str  # latency, normal, batch: the last that it had
    group: str
    gpus: tuple[str, ...]  # that it used, as `tandem gpus` called them then
    command: str  # empty when the caller may not see it
    begin_time_ns: int  # since 1970
    end_time_ns: int
    outcome: str  # ended, cancelled
    gpu_time_ns: int
    gpu_time_estimated: bool  # part of it was split between jobs that ran together
    wait_time_ns: int  # of its threads, for others: not while only its own window was full
    peak_bytes: int  # of device memory that it had taken
    launches: int
    iterations: int  # marked, or else found
    refusals: int  # times it was told out of memory
    findings: tuple[str, ...]  # rules of the watchdog that found something
    energy_mj: int | None = None  # as of a job that lives


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent:
    """One change of a job."""

    time_ns: int  # since 1970
    # A state, or registered, attached, updated, pausing, cancelled, finding, finding-over.
    kind: str
    job: Job
    times: int = 1  # of what is past: so often so far, and this was the last
    rule: str = ""  # of finding and finding-over: which of the watchdog's


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceEvent:
    """A moment of what jobs do on the GPUs."""

    # turn (the jobs have it from then on, none: nobody has work there), wait (a thread was held
    # back until then), step (an iteration ended), phase-begin and -end, request-begin and -end,
    # lost (some of what the process wrote since `duration_ns` before is not told).
    kind: str
    time_ns: int  # since 1970
    jobs: tuple[str, ...]  # empty text: one that the caller may not see
    gpus: tuple[int, ...]
    part: int = 0  # of turns: of the GPUs, where a plan divides them; 0 = all
    pid: int = 0
    thread: int = 0
    id: int = 0  # of a phase or request
    duration_ns: int = 0  # of a wait, or within which something was lost
    reason: str = ""  # of a wait: gate, window, presence, memory
    lost_records: int = 0  # of whatever kind: at most as many waits and marks


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """How long a job has waited for one reason, since it began."""

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
    story: tuple[str, ...]  # newest decisions about the job, oldest first
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchMemory:
    """What a launch touches, as far as its parameters tell."""

    accesses: tuple[tuple[int, int, bool], ...]  # address, bytes, whether it only reads
    is_all: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What one process did on the GPU, from the end of one iteration to that of another."""

    pid: int
    gpus: tuple[int, ...]
    begin_ns: int  # of the daemon's clock, as in the records
    end_ns: int
    first_iteration: int  # how many had ended before
    iterations: int  # whole ones in it; 0 = none is known
    lost_records: int
    is_cut: bool  # it goes on after the last record
    records: bytes  # 64 bytes each, as docs/shared-memory.md says; by when they had effect
    kernels: tuple[tuple[int, str], ...]  # handle, as in the records, and mangled name
    # By sample number, the low half of a sampled launch's value: what it touches.
    launches: dict[int, LaunchMemory] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetProof:
    """Whether sets of SMs of two processes are disjoint on a GPU."""

    under_way: bool  # nothing has come out yet
    groups: int  # that sets are made of; 0 = there are none
    group_sms: int  # SMs in each
    problem: str  # why there are no sets


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU as the daemon sees it."""

    index: int  # unlike any other's
    uuid: str
    product_name: str
    mode: str
    memory_total_bytes: int
    memory_used_bytes: int
    sm_count: int
    busy_ratio: float  # of the last second, 0..1
    software: bool
    name: str  # its index; of a MIG instance GPU:INSTANCE, such as 0:2
    sets: SetProof | None = None  # where mode mps+green is configured and MPS runs
    not_had: str = ""  # why it is not in the mode that is configured; empty: it is, or none is
    unmanaged_processes: int | None = None  # compute there without the daemon; None: not known
    draining: bool = False  # no job is started there
    memory_reserved_bytes: int = 0  # of memory_total_bytes, what is kept free of all jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingCurve:
    """How long an iteration takes on how many SMs."""

    sm_counts: tuple[int, ...]  # ascending
    iteration_ns: tuple[int, ...]  # as many
    source: str  # predicted; probed: fitted to what it took on other numbers of SMs
    gamma: float  # how little SMs mean to its kernels, 0..1
    recorded_sms: int  # it was told from a record on so many
    recorded_ns: int  # and took so long there
    knee_sms: int  # beyond it each SM gains less


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPart:
    """A job's part of one GPU."""

    job: str
    display_name: str
    priority: str
    asked: str  # `30%`, `40 SMs`; empty: nothing
    asked_sms: int | None  # what that comes to
    given_sms: int | None  # that its kernels may use
    owed_ratio: float | None  # of the time of those it takes turns with
    required_sms: int | None  # keep its limit
    proposed_sms: int  # by its curve and its limit; 0 = what others leave
    why: str  # that many
    why_no_set: str  # though its GPU has sets of SMs: nothing is proposed; empty: it has one
    scaling: ScalingCurve | None
    doubt: str  # why there is no curve
    predicted_ns: int | None  # was said of `given_sms` before it ran on them
    measured_ns: int | None  # how long its iterations are now, without pauses between requests


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """How a GPU is divided among the jobs the caller may see."""

    gpu: Gpu
    part_sms: int | None  # the smallest part that there is
    jobs: tuple[JobPart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJob:
    """What is to be expected of a job under a plan."""

    job: str
    display_name: str
    sms: int
    shares_with: tuple[str, ...]  # jobs it takes turns with there
    progress_ratio: float  # 1 = as if it were alone on the whole GPU
    p99_ns: int | None  # of its requests; None: it has none, or cannot answer all
    misses: bool  # its objective
    slowdown: float  # by jobs on other SMs, 1 at least
    # What came of the plan in force so far; None: too little, or it is not in force.
    measured_progress_ratio: float | None = None
    measured_p99_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A way to share a GPU."""

    kind: str  # time, space, time and space
    needs: str  # what it takes
    progress: float  # of all together, by weight: 0 to their number
    missed: int  # objectives
    jobs: tuple[PlannedJob, ...]
    in_force: bool = False  # jobs share the GPU so now


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPlans:
    """The plan in force on a GPU, if one is, and the best of each kind, best first."""

    gpu: Gpu
    plans: tuple[Plan, ...]
    notes: tuple[str, ...]  # what is not known, and how far earlier forecasts were off
    planner: str = ""  # why the plan in force is, or why there is none


@dataclass(frozen=True, slots=True, kw_only=True)
class MigInstance:
    """A part of a GPU that was cut."""

    name: str | None  # such as "0:1"; None: it is not there yet
    profile: str  # such as "1g.18gb"

    def __str__(self) -> str:
        """As people read it."""
        return f"{self.name} ({self.profile})" if self.name else self.profile


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuCut:
    """What was, or would be, done to cut a GPU by MIG."""

    done: bool  # else it was only asked what would be done
    destroyed: tuple[MigInstance, ...]
    created: tuple[MigInstance, ...]
    turned: str  # MIG as a whole: on, off; empty: it stays as it is
    users: tuple[str, ...]  # who is in the way, if it is not done


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPoint:
    """What a job held of a GPU's memory from then on."""

    time_ns: int  # since 1970
    resident_bytes: int
    swapped_bytes: int
    filed_bytes: int  # of these, in files
    waiting_bytes: int  # its allocations wait for
    gpu_time_ns: int  # since it began
    sm_time_ns: int = 0  # SMs that its kernels held by how long, as records tell, since then


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCurve:
    """The same over the last minutes, oldest first."""

    job: str
    display_name: str
    gpu: int  # index
    points: tuple[MemoryPoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryHistory:
    """The curves of all jobs."""

    end_ns: int  # now, since 1970
    curves: tuple[MemoryCurve, ...]
    gpus: tuple[Gpu, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What the jobs of who asks may have, and the keys of the configuration that say so."""

    max_class: str  # latency, normal, batch
    max_class_key: str | None  # None: there is no limit
    max_memory_bytes: int | None  # of each GPU, all jobs together; with the next what is more,
    max_memory_percent: int | None  # and None and None where there is no limit
    max_memory_key: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The daemon itself."""

    version: str
    pid: int
    uptime_ns: int
    policy: str
    jobs: int
    processes: int
    runtime_dir: str
    clock: str  # monotonic, softgpu-virtual
    gpus: tuple[Gpu, ...]
    allowance: Allowance | None = None  # None: an older daemon does not say


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Who computes when."""

    name: str
    description: str
    available: tuple[str, ...]  # names of all
