"""The tables of the configuration: their keys, what each may be, and what it does.

The descriptions are also the reference: `docs/config.md` is made from them, so links are relative
to docs/.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator

from tandem.errors import UsageError
from tandem.units import parse_bytes, parse_device_bytes, parse_duration, parse_percent
from tandemd import state_file
from tandemd.config.limits import Limit
from tandemd.config.listen import UNIX, loopback
from tandemd.config.tables import Form, Table, understood_by
from tandemd.core.memory.ceilings import NONE, Ceiling
from tandemd.core.model import JobClass
from tandemd.core.policy import POLICIES

ClassName = Literal["latency", "normal", "batch"]
Mode = Literal["auto", "time", "mps", "mps+green"]
LaneOrder = Literal["fifo", "srtf", "fair", "pack"]
Privacy = Literal["open", "hide-cmdline", "own-only"]
Switch = Literal["off", "on"]


class DaemonTable(Table):
    """`[daemon]`."""

    privacy: Privacy = Field(
        default="hide-cmdline",
        description="who sees what of other people's jobs; whoever may read the files of "
        "`metrics.hpc_job_mapping_dir` sees the ids of all",
    )
    admin_group: Annotated[str, Form("name of a group")] = Field(
        default="tandem-admin", description="may change the policy and all jobs"
    )
    max_processes_per_uid: int = Field(
        default=8192,
        ge=1,
        description="processes of one user that are attached at once, those of `tandem run` whose "
        "job has no process on a GPU yet included",
    )
    state: Annotated[str, Form('whole path of a file, `"auto"` or `"none"`')] = Field(
        default=state_file.AUTO,
        description="the file for [what survives a restart]"
        "(operations.md#what-survives-a-restart), whose directory is made if it alone is missing; "
        '`"none"`: nothing does; `"auto"`: where such files are',
    )
    history: int = Field(
        default=10_000,
        ge=0,
        le=1_000_000,
        description="[jobs that have ended](operations.md#jobs-that-have-ended) and are kept, the "
        "newest; 0: none. What is kept beyond a lower number goes when the daemon is started next, "
        "not by HUP",
    )

    @field_validator("state")
    @classmethod
    def _is_file(cls, said: str) -> str:
        if said not in (state_file.AUTO, state_file.NOWHERE) and not Path(said).is_absolute():
            raise ValueError(
                f'\'{said}\' is neither "auto" nor "none" nor the whole path of a file'
            )
        return said


class SchedulerTable(Table):
    """`[scheduler]`."""

    policy: Annotated[str, Form(", ".join(f'`"{name}"`' for name in sorted(POLICIES)))] = Field(
        default="priority",
        description="[what the policies do](operations.md#what-the-policies-do)",
    )
    quantum_ms: float = Field(default=10, gt=0, le=10_000, description="GPU time of a turn")
    window_segments: int = Field(
        default=2, ge=0, le=64, description="open segments of best-effort work; 0 = no limit"
    )
    segment_us: float = Field(default=100, ge=10, le=100_000, description="GPU time of a segment")
    linger_us: float = Field(
        default=300,
        ge=0,
        le=1_000_000,
        description="how long presence of the latency class outlives activity, at least",
    )
    linger_max_us: float = Field(
        default=2000,
        ge=0,
        le=1_000_000,
        description="the same at most, as the gaps between a job's own requests call for; up to "
        "`linger_us`: not tuned",
    )
    drain_ms: float = Field(
        default=250,
        gt=0,
        le=10_000,
        description="a held group of whose work on the GPU nothing ends for so long, or for twice "
        "as long as the last piece took, is reopened; after 3 times it takes no turns",
    )
    max_hold_s: float = Field(
        default=20,
        gt=0,
        le=3600,
        description="longest hold at a stretch, but for paused jobs, and jobs that `lanes` does "
        "not let in or whose lane is another's now",
    )
    critical_ms: float = Field(
        default=10,
        ge=0,
        le=1000,
        description="by so much a job may lengthen a turn that asks not to lose the GPU now "
        "([`critical`](python.md)); 0 = such wishes are not heard",
    )
    nonpreemptible_ms: float = Field(
        default=1000,
        ge=0,
        le=10_000,
        description="by so much a turn may be longer for an iteration of a job that is "
        "[not preemptible](operations.md#iterations-that-are-not-cut); 0 = every iteration may be "
        "cut",
    )
    min_share: float = Field(
        default=0.05,
        ge=0,
        le=0.5,
        description="of the last second, for a class that waits for higher ones",
    )
    throttle_loss: float = Field(
        default=0.03,
        ge=0.005,
        le=0.5,
        description="by so much longer iterations of a normal job may take under `throttle` for "
        "batch work beside them, as a part",
    )
    presence_across_users: bool = Field(
        default=True, description="whether jobs see when those of other users are busy"
    )
    find_iterations: bool = Field(
        default=True,
        description="whether iterations found in what a job submits count where it marks none",
    )
    forecast_gaps: bool = Field(
        default=True,
        description="whether the window is one segment beside latency jobs whose gaps are "
        "expected to be short",
    )
    classify_kernels: bool = Field(
        default=True,
        description="whether `pair` has recorded what bounds the kernels of jobs; else nobody "
        "shares a turn",
    )
    size_sets: bool = Field(
        default=True,
        description="whether jobs in mode mps+green get as many SMs as they "
        "[have use for](partitions.md#how-many-sms-a-job-has-use-for); else only `--sm` says how "
        "many",
    )
    probe_sets: bool = Field(
        default=True,
        description="whether such a job is given fewer SMs for as long as it takes to record an "
        "iteration, once, to see how it scales",
    )
    lane_order: LaneOrder = Field(
        default="fifo", description="who comes next under [`lanes`](admission.md)"
    )

    @field_validator("policy")
    @classmethod
    def _is_known(cls, name: str) -> str:
        if name not in POLICIES:
            raise ValueError(
                f"no policy is named '{name}'; there are {', '.join(sorted(POLICIES))}"
            )
        return name


# The name of a GPU: `*`, its index, or its whole UUID as NVML writes it.
_GPU_NAME = re.compile(
    r"\*|0|[1-9][0-9]{0,3}|(GPU|MIG)-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
)


def _gpu_name(said: str) -> str:
    if not _GPU_NAME.fullmatch(said):
        raise ValueError(
            f"'{said}' names no gpu; write '*' for all, an index from 0 to 9999, or a whole UUID, "
            'as `tandem gpus --json` shows it: [gpu."*"]'
        )
    return said


GpuName = Annotated[str, AfterValidator(_gpu_name)]


def reserve_bytes(text: str) -> int:
    """Parse `reserve_memory`.

    Raises:
        UsageError: it is not a size of GPU memory.
    """
    return parse_device_bytes(text, what="reserve_memory")


class GpuTable(Table):
    """`[gpu."*"]`, `[gpu.<index>]`, `[gpu.<UUID>]`.

    For each key, what is set for a GPU's UUID takes precedence over what is set for its index, and
    that over `"*"`.
    """

    mode: Mode = Field(
        default="auto",
        description="`mps`: kernels of several processes run side by side there, by an MPS that "
        "the daemon uses or [starts](partitions.md#mps); `mps+green`: the same, each job on "
        "[a set of SMs](partitions.md#sets-of-sms-mpsgreen) of its own; `time`: never; `auto`: "
        "`mps` where the daemon finds a control daemon of MPS (`CUDA_MPS_PIPE_DIRECTORY`, else "
        "`/tmp/nvidia-mps`) when it starts or reads its configuration. "
        "[Instances of MIG](partitions.md#mig) are in mode `mig` whatever is said",
    )
    reserve_memory: Annotated[
        str, understood_by(reserve_bytes), Form('size, such as `"1GiB"`, less than the GPU has')
    ] = Field(
        default="0",
        description="memory of the GPU that is "
        "[kept free of all jobs](memory.md#what-is-kept-free-of-all-jobs)",
    )


class PartitionTable(Table):
    """`[partition]`."""

    planner: Switch = Field(
        default="off",
        description='`"on"`: on GPUs in mode mps+green jobs share time, space or both as planned '
        "([how](partitions.md#time-space-or-both))",
    )
    tuner: Switch = Field(
        default="off",
        description='`"on"`: sizes of jobs follow what their requests take, where `--slo` says '
        "what they are to take ([how](partitions.md#the-tuner))",
    )
    window_s: float = Field(
        default=2,
        ge=0.1,
        le=600,
        description="for so long requests are looked at before a size is changed, and so often "
        "plans are compared",
    )
    dead_band: float = Field(
        default=0.1,
        ge=0.01,
        le=0.4,
        description="of the objective: sizes settle so far around that far below it",
    )


class ClassTable(Table):
    """`[class.<name>]`: `latency`, `normal`, `batch`."""

    weight: int | None = Field(
        default=None,
        ge=1,
        le=1000,
        description="share under `fair`, of what "
        "[shares that jobs say](partitions.md#a-share-of-time) leave; where none is said latency "
        "has 8, normal 4, batch 1",
    )
    memory_swap: bool = Field(
        default=False,
        description="whether jobs of the class are swappable that say neither `--swappable` nor "
        "`--no-swappable` when they start",
    )
    preemptible: bool = Field(
        default=True,
        description="whether [iterations](operations.md#iterations-that-are-not-cut) of jobs of "
        "the class may be cut that say neither `--preemptible` nor `--no-preemptible`",
    )


def idle_release_ns(text: str) -> int:
    """Parse `idle_release`; 0: never.

    Raises:
        UsageError: it is not a duration.
    """
    return 0 if text in ("never", "none") else parse_duration(text, what="idle_release")


Size = Annotated[str, understood_by(parse_bytes), Form("size")]


class MemoryTable(Table):
    """`[memory]`."""

    host_limit: Size = Field(
        default="64GiB",
        description="memory of the host for what is moved off the GPU, of all jobs together, as "
        'far as the machine has it; `"0"`: nothing is moved ([swap.md](swap.md))',
    )
    swap_dir: Annotated[str, Form('`"host"`, or whole path of a directory')] = Field(
        default="host",
        description='`"host"`: memory of the host is all there is for what is moved off the GPU; '
        "a directory: where that does not suffice, files in it ([swap.md](swap.md#files))",
    )
    swap_dir_limit: Size = Field(default="256GiB", description="all these files together")
    idle_release: Annotated[
        str, understood_by(idle_release_ns), Form('duration, such as `"60s"`, or `"never"`')
    ] = Field(
        default="never",
        description="a swappable job without work for so long gives its memory to others until "
        "its next call",
    )

    @field_validator("swap_dir")
    @classmethod
    def _is_place(cls, text: str) -> str:
        if text != "host" and not Path(text).is_absolute():
            raise ValueError(f"'{text}' is neither \"host\" nor the whole path of a directory")
        return text

    @property
    def directory(self) -> Path | None:
        """Return where files for moved memory are made; None: nowhere."""
        return None if self.swap_dir == "host" else Path(self.swap_dir)

    @property
    def file_limit_bytes(self) -> int:
        """Return the limit of all those files together."""
        return 0 if self.directory is None else parse_bytes(self.swap_dir_limit)


def _ceiling(text: str, key: str = "") -> Ceiling:
    if text == "none":
        return NONE
    what, key = "max_memory", f"{key}.max_memory"
    if text.strip().endswith("%"):
        return Ceiling(percent=parse_percent(text, what=what), key=key)
    try:
        size_bytes = parse_device_bytes(text, what=what)
    except UsageError as error:
        raise UsageError(f'{error}; or write a share such as "50%", or "none"') from error
    if size_bytes == 0:
        raise UsageError(f'{what} {text!r} would leave no memory; for no limit say "none"')
    return Ceiling(size_bytes=size_bytes, key=key)


CeilingText = Annotated[
    str,
    understood_by(_ceiling),
    Form('size, such as `"20GiB"`, share, such as `"50%"`, or `"none"`'),
]


class LimitTable(Table):
    """`[limits.user.<name or uid>]`, `[limits.group.<name>]`.

    Of the sections that name a user, the most generous counts; the default counts only for users
    whom none names, so a section may give less than the default. A section may set only one of
    class and memory. [When the user database is asked](operations.md#configure-it).
    """

    max_class: ClassName | None = Field(
        default=None, description="the most urgent class that their jobs may have"
    )
    max_memory: CeilingText | None = Field(
        default=None,
        examples=["50%"],
        description="what all their jobs together, each user's by themselves, may hold of the "
        "memory of each GPU; the most generous on each GPU counts, "
        '`"none"` before all others ([memory.md](memory.md#what-a-user-may-have))',
    )

    def limit(self, key: str) -> Limit:
        """Return the limits that the table sets; `key` is that of the table."""
        job_class = None if self.max_class is None else JobClass[self.max_class.upper()]
        memory = None if self.max_memory is None else _ceiling(self.max_memory, key)
        return Limit(key=key, job_class=job_class, memory=memory)


class DefaultLimitTable(LimitTable):
    """`[limits.default]`: for everyone but root and the daemon's uid."""

    max_class: ClassName = Field(
        default="normal",
        description="the most urgent class: with it a `tandem run -p latency` of others is "
        "`normal`, after a warning; a reload leaves jobs that run the class that they have",
    )
    max_memory: CeilingText = Field(
        default="none",
        examples=["50%"],
        description="what all jobs of a user together may hold of the memory of each GPU "
        "([memory.md](memory.md#what-a-user-may-have))",
    )


class LimitsTable(Table):
    """`[limits]`."""

    default: DefaultLimitTable = DefaultLimitTable()
    user: dict[str, LimitTable] = Field(default={})
    group: dict[str, LimitTable] = Field(default={})


class MetricsTable(Table):
    """`[metrics]`."""

    listen: Annotated[str, Form("`unix:/path`, or loopback address and port")] = Field(
        default="",
        description="where Prometheus may ask, such as `127.0.0.1:9446`; empty: nowhere. The unit "
        "has no network: [with it](operations.md#metrics) an address needs a drop-in",
    )
    hpc_job_mapping_dir: Annotated[str, Form("whole path of a directory")] = Field(
        default="",
        description="directory with a file a GPU that names its jobs, for "
        "[dcgm-exporter](operations.md#metrics), as `/run/tandem/dcgm-jobs`; it is made where it "
        "is not there, and everybody can read it, ids of jobs included, also where "
        "`daemon.privacy` is `own-only`; empty: none",
    )

    @field_validator("hpc_job_mapping_dir")
    @classmethod
    def _is_whole(cls, folder: str) -> str:
        if folder and not Path(folder).is_absolute():
            raise ValueError(f"'{folder}' is no whole path, as /run/tandem/dcgm-jobs")
        return folder

    @field_validator("listen")
    @classmethod
    def _is_local(cls, listen: str) -> str:
        if listen.startswith(UNIX):
            if not Path(listen.removeprefix(UNIX)).is_absolute():
                raise ValueError(f"'{listen}' names no whole path; write unix:/path")
        elif listen:
            try:
                loopback(listen)
            except UsageError as error:
                raise ValueError(str(error)) from error
        return listen
