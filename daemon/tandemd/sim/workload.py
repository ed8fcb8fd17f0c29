"""What a simulation plays: a GPU, jobs, and settings of the scheduler, from a TOML file.

Keys that the daemon or `tandem run` has, too, have the same names and ranges.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from tandem.errors import UsageError
from tandem.units import Percent, parse_bytes, parse_duration, parse_slo, parse_sm
from tandemd.config.config import Config, read_toml
from tandemd.config.faults import faults_of
from tandemd.config.schema import ClassName, ClassTable, SchedulerTable
from tandemd.config.tables import Table, understood_by
from tandemd.core.model import NO_LIMIT, JobClass, JobSpec, Options

GPU = 0  # the only one
SETTABLE = ("scheduler", "class", "gpu")
COMMAND_LINE = Path("--set")

Duration = Annotated[str, understood_by(parse_duration)]
Size = Annotated[str, understood_by(parse_bytes)]


def _parse_work(text: str) -> int:
    work_ns = parse_duration(text)
    if work_ns == 0:
        raise UsageError(f"duration {text!r} is zero; it must be longer")
    return work_ns


Work = Annotated[str, understood_by(_parse_work)]


class GpuTable(Table):
    """`[gpu]`; the defaults are those of an H200 (docs/driver-facts.md)."""

    mode: Literal["time"] = "time"
    memory: Size | None = Field(default=None, examples=["80GiB"])  # None: there is enough
    sms: int = Field(default=0, ge=0, le=9999)  # 0 = not known
    slice: Work = "2ms"
    switch: Duration = "200us"

    @property
    def memory_bytes(self) -> int:
        """Return its size; 0 = unlimited."""
        return parse_bytes(self.memory) if self.memory else 0

    @property
    def slice_ns(self) -> int:
        """Return how long a context keeps the GPU while another waits."""
        return parse_duration(self.slice)

    @property
    def switch_ns(self) -> int:
        """Return the cost of a context switch."""
        return parse_duration(self.switch)


class WorkTable(Table):
    """What iterations and requests have in common."""

    gpu: Work = Field(examples=["20ms"])
    kernel: Work = "1us"  # GPU time of each kernel in it; a segment is whole kernels
    host: Duration = "0ms"
    variation: float = Field(default=0.0, ge=0, lt=1)  # both vary by up to this part, up and down
    seed: int = 0

    @property
    def gpu_ns(self) -> int:
        """Return the usual GPU time of one."""
        return parse_duration(self.gpu)

    @property
    def kernel_ns(self) -> int:
        """Return the GPU time of one of its kernels."""
        return parse_duration(self.kernel)

    @property
    def host_ns(self) -> int:
        """Return the usual time in which one submits nothing."""
        return parse_duration(self.host)


class TrainingTable(WorkTable):
    """`[job.training]`: one iteration after the other."""

    iterations: int = Field(ge=1, le=10_000_000)
    marks: bool = True  # each ends with `tandem.step()`


class ServingTable(WorkTable):
    """`[job.serving]`: requests that come whether or not those before have ended."""

    rate: float | None = Field(default=None, gt=0, le=1_000_000)  # per second, at random
    duration: Duration | None = Field(default=None, examples=["10s"])  # how long they come
    arrivals: list[Duration] | None = None  # instead of these two; since the job's own arrival

    @model_validator(mode="after")
    def _is_one_of_two(self) -> ServingTable:
        by_chance = self.rate is not None and self.duration is not None
        told = self.rate is not None or self.duration is not None
        if by_chance == (self.arrivals is not None) or told != by_chance:
            raise ValueError("give either rate and duration, or arrivals")
        return self

    @property
    def duration_ns(self) -> int:
        """Return how long requests come at random."""
        return parse_duration(self.duration or "0s")

    @property
    def arrivals_ns(self) -> list[int]:
        """Return the arrivals that are listed one by one, since the job's own."""
        return sorted(map(parse_duration, self.arrivals or ()))


class JobTable(Table):
    """`[[job]]`."""

    name: str = Field(min_length=1)
    job_class: ClassName = Field(default="normal", alias="class")
    arrival: Duration = "0s"
    group: str = ""
    sm: Annotated[str, understood_by(parse_sm)] | None = Field(default=None, examples=["30%"])
    memory: Size | None = Field(default=None, examples=["8GiB"])  # a limit
    persistent: Size = "0B"
    ephemeral: Size = "0B"
    promises: bool = True  # declares these two on arrival, as --persistent and --ephemeral do
    preemptible: bool | None = None
    slo: Annotated[str, understood_by(parse_slo)] | None = Field(
        default=None, examples=["p99=50ms"]
    )
    training: TrainingTable | None = None
    serving: ServingTable | None = None

    @model_validator(mode="after")
    def _does_one_thing(self) -> JobTable:
        if (self.training is None) == (self.serving is None):
            raise ValueError(f"job '{self.name}' needs either [job.training] or [job.serving]")
        return self

    @property
    def work(self) -> TrainingTable | ServingTable:
        """Return what it does."""
        work = self.training or self.serving
        if work is None:
            raise AssertionError
        return work

    @property
    def arrival_ns(self) -> int:
        """Return when it comes, since the beginning."""
        return parse_duration(self.arrival)

    @property
    def persistent_bytes(self) -> int:
        """Return what it holds permanently."""
        return parse_bytes(self.persistent)

    @property
    def ephemeral_bytes(self) -> int:
        """Return what an iteration or a request takes in addition."""
        return parse_bytes(self.ephemeral)

    @property
    def slo_ns(self) -> int:
        """Return the objective for the p99 of requests; 0 = none."""
        return parse_slo(self.slo) if self.slo else 0

    def spec(self) -> JobSpec:
        """Return what the core is told of it."""
        sm = parse_sm(self.sm) if self.sm else 0
        return JobSpec(
            name=self.name,
            job_class=JobClass[self.job_class.upper()],
            group=self.group,
            sm_percent=sm.value if isinstance(sm, Percent) else 0,
            sm_count=0 if isinstance(sm, Percent) else sm,
            memory_bytes=parse_bytes(self.memory) if self.memory else NO_LIMIT,
            persistent_bytes=self.persistent_bytes if self.promises else 0,
            ephemeral_bytes=self.ephemeral_bytes if self.promises else 0,
            preemptible=self.preemptible,
            slo_p99_ns=self.slo_ns,
        )


class WorkloadTable(Table):
    """The whole file."""

    gpu: GpuTable = GpuTable()
    job: list[JobTable] = Field(min_length=1)
    scheduler: SchedulerTable = SchedulerTable()
    classes: dict[ClassName, ClassTable] = Field(default={}, alias="class")

    @field_validator("job")
    @classmethod
    def _have_names(cls, jobs: list[JobTable]) -> list[JobTable]:
        names = [job.name for job in jobs]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"more than one job is named '{twice[0]}'")
        return jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is played, and under which settings."""

    gpu: GpuTable
    jobs: tuple[JobTable, ...]
    options: Options

    def only(self, job: JobTable) -> Workload:
        """Return the same workload with this job alone."""
        return Workload(gpu=self.gpu, jobs=(job,), options=self.options)


def load(path: Path, settings: Iterable[str] = (), policy: str | None = None) -> Workload:
    """Read a file; `settings`, such as `scheduler.quantum_ms=5`, override it.

    Raises:
        UsageError: a key or a value is wrong, with the file, the key and what is allowed.
    """
    said = read_toml(path)
    origin = {}
    if policy is not None:
        settings = (*settings, f'scheduler.policy="{policy}"')
    for setting in settings:
        origin[_put(said, setting)] = COMMAND_LINE
    return workload_of(said, path, origin)


def workload_of(said: Mapping[str, Any], path: Path, origin: Mapping[str, Path]) -> Workload:
    """Build a workload from parsed contents; `origin` says where some keys come from.

    Raises:
        UsageError: as `load`.
    """
    try:
        table = WorkloadTable.model_validate(said)
    except ValidationError as error:
        raise UsageError(faults_of(error, WorkloadTable, origin, path)) from error
    config = Config.model_validate({"scheduler": table.scheduler, "class": table.classes})
    options = config.options(sm_counts={GPU: table.gpu.sms})
    return Workload(gpu=table.gpu, jobs=tuple(table.job), options=options)


def _put(said: dict[str, Any], setting: str) -> str:
    """Apply a `--set` to the file's contents; returns the key."""
    key, equals, text = setting.partition("=")
    *tables, last = key.strip().split(".")
    if not equals or not tables or tables[0] not in SETTABLE:
        known = ", ".join(SETTABLE)
        raise UsageError(
            f"--set {setting!r} is not TABLE.KEY=VALUE with a table of {known}; "
            "write scheduler.quantum_ms=5"
        )
    place = said
    for name in tables:
        place = place.setdefault(name, {})
        if not isinstance(place, dict):
            raise UsageError(f"--set {setting!r}: {name} is not a table")
    place[last] = _value(text.strip())
    return key.strip()


def _value(text: str) -> object:
    """Read a value as TOML; what is none is a text, so that shells need no second quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
