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
        description="what users see of other people's jobs; whoever may read the files in "
        "`metrics.hpc_job_mapping_dir` sees the ids of all jobs",
    )
    admin_group: Annotated[str, Form("name of a group")] = Field(
        default="tandem-admin", description="members may change the policy and all jobs"
    )
    max_processes_per_uid: int = Field(
        default=8192,
        ge=1,
        description="how many processes of one user may be attached at once, including those of "
        "`tandem run` whose job has no process on a GPU yet",
    )
    state: Annotated[str, Form('absolute path of a file, `"auto"` or `"none"`')] = Field(
        default=state_file.AUTO,
        description="the file for [what survives a restart]"
        "(operations.md#what-survives-a-restart); its directory is created, but no parent of it; "
        '`"none"`: nothing survives; `"auto"`: the usual place for such files',
    )
    history: int = Field(
        default=10_000,
        ge=0,
        le=1_000_000,
        description="how many [jobs that have ended](operations.md#jobs-that-have-ended) are "
        "kept, the newest ones; 0: none. After the number is lowered, the jobs beyond it are "
        "dropped at the next start of the daemon, not by HUP",
    )

    @field_validator("state")
    @classmethod
    def _is_file(cls, said: str) -> str:
        if said not in (state_file.AUTO, state_file.NOWHERE) and not Path(said).is_absolute():
            raise ValueError(
                f'\'{said}\' is neither "auto" nor "none" nor the absolute path of a file'
            )
        return said


class SchedulerTable(Table):
    """`[scheduler]`."""

    policy: Annotated[str, Form(", ".join(f'`"{name}"`' for name in sorted(POLICIES)))] = Field(
        default="priority",
        description="[what the policies do](operations.md#what-the-policies-do)",
    )
    quantum_ms: float = Field(default=10, gt=0, le=10_000, description="GPU time per turn")
    window_segments: int = Field(
        default=2,
        ge=0,
        le=64,
        description="how many segments of best-effort work may be open; 0 = no limit",
    )
    segment_us: float = Field(default=100, ge=10, le=100_000, description="GPU time per segment")
    linger_us: float = Field(
        default=300,
        ge=0,
        le=1_000_000,
        description="minimum time for which a latency job still counts as present after its last "
        "activity",
    )
    linger_max_us: float = Field(
        default=2000,
        ge=0,
        le=1_000_000,
        description="maximum of the same: between the two, the time is tuned to the gaps between "
        "the job's own requests; at most `linger_us`: not tuned",
    )
    drain_ms: float = Field(
        default=250,
        gt=0,
        le=10_000,
        description="the gate of a held group is reopened if none of its work in flight completes "
        "for this long, or for twice as long as the last piece took, whichever is longer; after 3 "
        "such holds the group takes no turns",
    )
    max_hold_s: float = Field(
        default=20,
        gt=0,
        le=3600,
        description="longest time that a job is held without a break, except if it is paused, or "
        "if `lanes` does not admit it or has given its lane to another job for now",
    )
    critical_ms: float = Field(
        default=10,
        ge=0,
        le=1000,
        description="by how much a job that asks not to lose the GPU now ([`critical`](python.md)) "
        "may lengthen its turn; 0 = such requests are ignored",
    )
    nonpreemptible_ms: float = Field(
        default=1000,
        ge=0,
        le=10_000,
        description="by how much a turn may be extended to finish an iteration of a job that is "
        "[not preemptible](operations.md#iterations-that-are-not-cut); 0 = every iteration may be "
        "cut",
    )
    min_share: float = Field(
        default=0.05,
        ge=0,
        le=0.5,
        description="fraction of the last second that a class gets at least if it waits for higher "
        "classes",
    )
    throttle_loss: float = Field(
        default=0.03,
        ge=0.005,
        le=0.5,
        description="by what fraction batch work that runs beside a normal job may lengthen its "
        "iterations under `throttle`",
    )
    presence_across_users: bool = Field(
        default=True, description="whether jobs see when jobs of other users are busy"
    )
    find_iterations: bool = Field(
        default=True,
        description="whether iterations found in what a job submits count if the job marks none",
    )
    forecast_gaps: bool = Field(
        default=True,
        description="whether the window shrinks to one segment beside latency jobs whose gaps are "
        "expected to be short",
    )
    classify_kernels: bool = Field(
        default=True,
        description="whether `pair` records what bounds the kernels of jobs; if not, no jobs "
        "share a turn",
    )
    size_sets: bool = Field(
        default=True,
        description="whether jobs in mode mps+green get as many SMs as they "
        "[have use for](partitions.md#how-many-sms-a-job-has-use-for); if not, only `--sm` "
        "decides how many",
    )
    probe_sets: bool = Field(
        default=True,
        description="whether such a job is once given fewer SMs, for as long as it takes to record "
        "an iteration, to learn how it scales",
    )
    lane_order: LaneOrder = Field(
        default="fifo", description="which job comes next under [`lanes`](admission.md)"
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
            f"'{said}' names no gpu; write '*' for all, an index from 0 to 9999, or a full UUID as "
            'shown by `tandem gpus --json`: [gpu."*"]'
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
        description="`mps`: kernels of several processes run side by side, through an MPS control "
        "daemon that tandemd finds or [starts](partitions.md#mps); `mps+green`: the same, with "
        "each job on [a set of SMs](partitions.md#sets-of-sms-mpsgreen) of its own; `time`: "
        "kernels of two processes never overlap; `auto`: `mps` if tandemd finds an MPS control "
        "daemon (`CUDA_MPS_PIPE_DIRECTORY`, else `/tmp/nvidia-mps`) when it starts or reads its "
        "configuration, else `time`. [MIG instances](partitions.md#mig) are in mode `mig` whatever "
        "is set here",
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
        description='`"on"`: a planner decides whether jobs on GPUs in mode mps+green share time, '
        "space or both ([how](partitions.md#time-space-or-both))",
    )
    tuner: Switch = Field(
        default="off",
        description='`"on"`: the size of a job with an `--slo` is adjusted to how long its '
        "requests take ([how](partitions.md#the-tuner))",
    )
    window_s: float = Field(
        default=2,
        ge=0.1,
        le=600,
        description="how long requests are observed before a size is changed, and how often plans "
        "are compared",
    )
    dead_band: float = Field(
        default=0.1,
        ge=0.01,
        le=0.4,
        description="fraction of the objective: sizes settle where p99 is this far below the "
        "objective, give or take as much",
    )


class ClassTable(Table):
    """`[class.<name>]`: `latency`, `normal`, `batch`."""

    weight: int | None = Field(
        default=None,
        ge=1,
        le=1000,
        description="weight of each job under `fair`, for the GPU time that "
        "[shares set by jobs](partitions.md#a-share-of-time) leave; unless set, latency has 8, "
        "normal 4 and batch 1",
    )
    memory_swap: bool = Field(
        default=False,
        description="whether jobs of the class are swappable if they start with neither "
        "`--swappable` nor `--no-swappable`",
    )
    preemptible: bool = Field(
        default=True,
        description="whether [iterations](operations.md#iterations-that-are-not-cut) of jobs of "
        "the class may be cut if they set neither `--preemptible` nor `--no-preemptible`",
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
        description="how much host memory may hold what is moved off the GPU, for all jobs "
        'together, as far as the machine has it; `"0"`: nothing is moved ([swap.md](swap.md))',
    )
    swap_dir: Annotated[str, Form('`"host"`, or absolute path of a directory')] = Field(
        default="host",
        description='`"host"`: what is moved off the GPU goes to host memory only; a directory: to '
        "files in it as well, once host memory is used up ([swap.md](swap.md#files))",
    )
    swap_dir_limit: Size = Field(default="256GiB", description="size of all these files together")
    idle_release: Annotated[
        str, understood_by(idle_release_ns), Form('duration, such as `"60s"`, or `"never"`')
    ] = Field(
        default="never",
        description="after this long without work, a swappable job gives its memory to others "
        "until its next call",
    )

    @field_validator("swap_dir")
    @classmethod
    def _is_place(cls, text: str) -> str:
        if text != "host" and not Path(text).is_absolute():
            raise ValueError(f"'{text}' is neither \"host\" nor the absolute path of a directory")
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
        raise UsageError(f'{what} {text!r} would leave no memory; for no limit write "none"')
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
        default=None, description="the most urgent class that these users' jobs may have"
    )
    max_memory: CeilingText | None = Field(
        default=None,
        examples=["50%"],
        description="how much memory of each GPU all jobs of one of these users may hold together; "
        "on each GPU the most generous of a user's limits counts, "
        '`"none"` being the most generous ([memory.md](memory.md#what-a-user-may-have))',
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
        description="the most urgent class that jobs may have: with `normal`, a job started by "
        "`tandem run -p latency` gets `normal` and a warning; a reload does not change the class "
        "of running jobs",
    )
    max_memory: CeilingText = Field(
        default="none",
        examples=["50%"],
        description="how much memory of each GPU all jobs of a user may hold together "
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
        description="where Prometheus can scrape, such as `127.0.0.1:9446`; empty: nowhere. Under "
        "the systemd unit, which has no network, an address needs [a "
        "drop-in](operations.md#metrics)",
    )
    hpc_job_mapping_dir: Annotated[str, Form("absolute path of a directory")] = Field(
        default="",
        description="directory for one file per GPU that names its jobs, for "
        "[dcgm-exporter](operations.md#metrics), such as `/run/tandem/dcgm-jobs`; it is created if "
        "missing, and everybody can read it, ids of jobs included, even if `daemon.privacy` is "
        "`own-only`; empty: none",
    )

    @field_validator("hpc_job_mapping_dir")
    @classmethod
    def _is_whole(cls, folder: str) -> str:
        if folder and not Path(folder).is_absolute():
            raise ValueError(f"'{folder}' is not an absolute path such as /run/tandem/dcgm-jobs")
        return folder

    @field_validator("listen")
    @classmethod
    def _is_local(cls, listen: str) -> str:
        if listen.startswith(UNIX):
            if not Path(listen.removeprefix(UNIX)).is_absolute():
                raise ValueError(f"'{listen}' has no absolute path; write unix:/path")
        elif listen:
            try:
                loopback(listen)
            except UsageError as error:
                raise ValueError(str(error)) from error
        return listen
