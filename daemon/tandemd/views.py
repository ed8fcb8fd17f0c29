"""Plain values that leave the loop's thread: the core's facts as one caller may see them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace

from tandem import _native
from tandemd.core.energy import Metered
from tandemd.core.histogram import Counted
from tandemd.core.memory.ceilings import Ceiling
from tandemd.core.model import JobClass, JobSpec, JobState, Split
from tandemd.core.planner.divisions import InForce
from tandemd.core.planner.planning import Outlook
from tandemd.core.planner.plans import Valued
from tandemd.core.space.layouts import Cut
from tandemd.core.space.partition import Part
from tandemd.core.watchdog.finding import Finding
from tandemd.edges.gpus import Gpu
from tandemd.observers.history import Point


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessView:
    """One attached process."""

    pid: int
    attached_wall_ns: int
    device_bytes: int  # GPU memory allocated, swapped_bytes included
    swapped_bytes: int
    filed_bytes: int  # the part of these in files
    ungated: bool
    dropped_records: int
    shim_version: str  # as its shim reports it: `0.1.0`


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingView:
    """A finding of the watchdog about a job."""

    since_wall_ns: int
    finding: Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A job as its caller may see it."""

    job_id: int
    uid: int
    user: str
    command: str  # empty when hidden
    spec: JobSpec
    state: JobState
    reason: str
    created_wall_ns: int
    processes: tuple[ProcessView, ...]
    gpus: tuple[int, ...]
    gpu_names: tuple[str, ...]  # in the order of `gpus`
    mode: str  # of all of these: time, mps
    gpu_ns: int
    shared_ns: int
    waits_ns: tuple[int, ...]  # by WaitReason
    launches: int
    moved_bytes: tuple[int, ...]  # copied to the host so far, and back
    moved_ns: tuple[int, ...]  # the time that took
    steps: int
    iterations: int  # of all its processes, marked or else detected
    audited_bytes: int  # what the driver says that it holds
    refused_by: tuple[int, ...]  # out-of-memory answers, by Refusal
    memory_wait_bytes: int  # what its first allocation in line waits for; 0 = none waits
    memory_wait_place: int  # in line, from 1
    share: float
    requests: int  # ended in the last half minute; 0 = none, or not observed
    p99_ns: int  # of these
    owed: float  # what its --sm owes it of the GPU's time, as a fraction like `share`; 0 = nothing
    findings: tuple[FindingView, ...]
    marked_p99_ns: int = 0  # what its marks allow `p99_ns` to be; 0 = they say nothing
    energy_mj: int | None = None  # attributed to it; None: not known, or not yet
    served: Counted | None = None  # all requests so far; None: not observed, and there was none
    missed: int = 0  # of these, how many exceeded --slo, or else their mark, as set at the time
    gate_waits: Counted | None = None  # how long it was held with work, per hold that ended
    preemptions: tuple[int, ...] = ()  # times it lost the turn with work, by Preemption
    set_sms: int = 0  # of its set of SMs; 0 = it has none
    set_groups: tuple[int, ...] = ()  # groups of SMs in that set, by number
    sms: int = 0  # of its first GPU, that its kernels may use now; 0 = not known
    unready: int = 0  # programs that were not ready when it was paused
    pause_in_ns: int | None = None  # time left at most for its programs before it is paused
    warnings: tuple[str, ...] = ()  # changes just set that have no effect, and why

    @property
    def name(self) -> str:
        """Return the job's name, such as `j-7f3a`."""
        return f"j-{self.job_id:x}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplanationView:
    """Why a job runs or waits."""

    name: str
    summary: str
    lines: tuple[str, ...]
    policy: str
    mode: str  # time, mps
    wait_ns: tuple[int, ...]  # by WaitReason
    story: tuple[str, ...]
    findings: tuple[FindingView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuView:
    """A GPU and how busy it was in the last second."""

    gpu: Gpu
    mode: str  # time, mps
    busy: float
    split: Split | None = None  # of its sets of SMs
    is_being_proved: bool = False  # whether a proof of its sets is under way
    unproved: str = ""  # why it has no sets, where they are asked for
    not_had: str = ""  # why it is not in the configured mode; empty: it is, or none is set
    strangers: int | None = None  # processes that compute there without this daemon; None: unknown
    is_draining: bool = False  # no job is started there
    energy: Metered | None = None  # None: its driver does not count energy
    reserved_bytes: int = 0  # of its memory, kept free of all jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionView:
    """How a GPU is divided among the jobs that one caller may see."""

    gpu: GpuView
    part_sms: int  # the smallest possible part; 0 = not known
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlansView:
    """How the jobs on a GPU that one caller may see might share it."""

    gpu: GpuView
    outlook: Outlook | None  # None: no jobs are there
    plans: tuple[Valued, ...] = ()
    in_force: InForce = field(default_factory=InForce)  # its plan is one of `plans`, or empty

    @staticmethod
    def of(gpu: GpuView, outlook: Outlook | None, in_force: InForce) -> PlansView:
        """Value all plans, that in force first. Takes milliseconds: not for the loop's thread."""
        if outlook is None:
            return PlansView(gpu=gpu, outlook=None)
        plans = outlook.alternatives()
        names = {name for part in in_force.plan for name in part.members}
        if names != outlook.scene.workers.keys():  # the caller may not see all of them
            in_force = replace(in_force, plan=())
        if in_force.plan:
            plans = [one for one in plans if set(one.plan) != set(in_force.plan)]
            plans.insert(0, outlook.scene.value(in_force.plan))
        return PlansView(gpu=gpu, outlook=outlook, plans=tuple(plans), in_force=in_force)


@dataclass(frozen=True, slots=True, kw_only=True)
class CutView:
    """What was, or would be, done to cut a GPU."""

    cut: Cut
    users: tuple[str, ...]  # processes that are in the way; none once it is done


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveView:
    """A job's use of a GPU's memory over time; times are those of the daemon's clock."""

    name: str
    display_name: str
    gpu: int
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryView:
    """The curves of all jobs that the caller may see."""

    end_wall_ns: int
    since_wall_ns: int  # add to times of the clock
    curves: tuple[CurveView, ...]
    gpus: tuple[GpuView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsView:
    """All counters and gauges, as one caller may see them."""

    policy: str
    jobs: tuple[JobView, ...]
    gpus: tuple[GpuView, ...]
    decisions: Counted  # of the core, by the time they took
    is_reload_good: bool  # the configuration that was read last is in force
    is_state_kept: bool  # the state file has what a restart needs, or none is wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusView:
    """The daemon itself."""

    uptime_ns: int
    policy: str
    jobs: int
    processes: int
    clock: str
    allowance: AllowanceView
    state_problem: str  # why a restart would lose what the state file is for; empty: it would not


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowanceView:
    """What the caller's jobs may have, and the configuration keys that say so."""

    max_class: JobClass
    class_key: str  # empty: there is no limit
    memory: Ceiling


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A change of a job, for a watcher, or the last one of its kind."""

    wall_ns: int
    kind: str
    job: JobView
    times: int = 1
    rule: str = ""  # of a finding


def etag_of(spec: JobSpec) -> str:
    """Return a tag that changes when the spec does."""
    return hashlib.blake2s(repr(spec).encode(), digest_size=4).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowView:
    """What one process did, from the end of one iteration to the end of another."""

    pid: int
    gpus: tuple[int, ...]
    window: _native.Window
    kernels: tuple[tuple[int, str], ...]  # handle and name, where known
    # By sample number: address, bytes and whether they are only read; and whether that is all.
    launches: dict[int, tuple[list[tuple[int, int, bool]], bool]]
