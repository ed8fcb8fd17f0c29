"""What a simulation plays: a GPU, jobs, and settings of the scheduler, from a TOML file.

Keys that the daemon or `tandem run` knows, too, are called the same and have the same ranges.
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

GPU = 0  # there is one
SETTABLE = ("scheduler", "class", "gpu")
COMMAND_LINE = Path("--set")

Duration = Annotated[str, understood_by(parse_duration)]
Size = Annotated[str, understood_by(parse_bytes)]


def _parse_work(text: str) -> int:
    work_ns = parse_duration(text)
    if work_ns == 0:
        raise UsageError(f"duration {text!r} is zero; it has to be longer than that")
    return work_ns


Work = Annotated[str, understood_by(_parse_work)]


class GpuTable(Table):
    """`[gpu]`; what is built in is as an H200 does it (docs/driver-facts.md)."""

    mode: Literal["time"] = "time"
    memory: Size | None = Field(default=None, examples=["80GiB"])  # None: there is enough
    sms: int = Field(default=0, ge=0, le=9999)  # 0 = not known
    slice: Work = "2ms"
    switch: Duration = "200us"

    @property
    def memory_bytes(self) -> int:
        """All there is; 0 = it is no matter."""
        return parse_bytes(self.memory) if self.memory else 0

    @property
    def slice_ns(self) -> int:
        """How long a context keeps the GPU while another waits."""
        return parse_duration(self.slice)

    @property
    def switch_ns(self) -> int:
        """What a change of contexts costs."""
        return parse_duration(self.switch)


class WorkTable(Table):
    """What iterations and requests have in common."""

    gpu: Work = Field(examples=["20ms"])
    kernel: Work = "1us"  # of which that is made: a segment is whole kernels
    host: Duration = "0ms"
    variation: float = Field(default=0.0, ge=0, lt=1)  # up to this part more or less of both
    seed: int = 0

    @property
    def gpu_ns(self) -> int:
        """GPU time of one, usually."""
        return parse_duration(self.gpu)

    @property
    def kernel_ns(self) -> int:
        """GPU time of a kernel of it."""
        return parse_duration(self.kernel)

    @property
    def host_ns(self) -> int:
        """Time in which one asks nothing of the GPU, usually."""
        return parse_duration(self.host)


class TrainingTable(WorkTable):
    """`[job.training]`: one iteration after the other."""

    iterations: int = Field(ge=1, le=10_000_000)
    marks: bool = True  # each ends with `tandem.step()`


class ServingTable(WorkTable):
    """`[job.serving]`: requests that come whether or not those before have ended."""

    rate: float | None = Field(default=None, gt=0, le=1_000_000)  # a second, by chance
    duration: Duration | None = Field(default=None, examples=["10s"])  # so long they come
    arrivals: list[Duration] | None = None  # in place of these; since the job's own

    @model_validator(mode="after")
    def _is_one_of_two(self) -> ServingTable:
        by_chance = self.rate is not None and self.duration is not None
        told = self.rate is not None or self.duration is not None
        if by_chance == (self.arrivals is not None) or told != by_chance:
            raise ValueError("say either rate and duration, or arrivals")
        return self

    @property
    def duration_ns(self) -> int:
        """How long requests come by chance."""
        return parse_duration(self.duration or "0s")

    @property
    def arrivals_ns(self) -> list[int]:
        """When those come that are told one by one, since the job's own arrival."""
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
    promises: bool = True  # says these two when it comes, as by --persistent and --ephemeral
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
        """What it does."""
        work = self.training or self.serving
        if work is None:
            raise AssertionError
        return work

    @property
    def arrival_ns(self) -> int:
        """When it comes, since the beginning."""
        return parse_duration(self.arrival)

    @property
    def persistent_bytes(self) -> int:
        """What it holds for good."""
        return parse_bytes(self.persistent)

    @property
    def ephemeral_bytes(self) -> int:
        """What an iteration or a request takes besides."""
        return parse_bytes(self.ephemeral)

    @property
    def slo_ns(self) -> int:
        """What 99 of 100 requests are to take at most; 0 = nobody says."""
        return parse_slo(self.slo) if self.slo else 0

    def spec(self) -> JobSpec:
        """What the core is told of it."""
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
        """The same with this job alone."""
        return Workload(gpu=self.gpu, jobs=(job,), options=self.options)


def load(path: Path, settings: Iterable[str] = (), policy: str | None = None) -> Workload:
    """Read a file; `settings`: such as `scheduler.quantum_ms=5`, in place of what it says.

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
    """The same of what a file says already as values; `origin`: where some keys are from.

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
    """Write what `--set` says into what the file says; the key."""
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
            raise UsageError(f"--set {setting!r}: {name} is no table")
    place[last] = _value(text.strip())
    return key.strip()


def _value(text: str) -> object:
    """As TOML reads it; what it cannot read is a text, so that shells need no second quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
