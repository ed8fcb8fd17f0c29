"""What the programs of jobs do, step by step; how long a step takes is for others to find out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from tandemd.sim.workload import JobTable, ServingTable, TrainingTable, WorkTable


@dataclass(frozen=True, slots=True)
class Sleep:
    """Ask nothing of the GPU for so long."""

    for_ns: int


@dataclass(frozen=True, slots=True)
class SleepUntil:
    """The same, to a time since the job came."""

    since_arrival_ns: int


@dataclass(frozen=True, slots=True)
class Allocate:
    """Take memory of the GPU."""

    size_bytes: int


@dataclass(frozen=True, slots=True)
class Free:
    """Give it back."""

    size_bytes: int


@dataclass(frozen=True, slots=True)
class Compute:
    """Submit work and wait for its end."""

    work_ns: int
    kernel_ns: int  # of which it is made


@dataclass(frozen=True, slots=True)
class Mark:
    """An iteration has ended; `is_told`: by `tandem.step()`, which the daemon sees."""

    is_told: bool


@dataclass(frozen=True, slots=True)
class Begin:
    """A request is begun (`tandem.slo`)."""


@dataclass(frozen=True, slots=True)
class Answer:
    """It is answered; it came at that time since the job came."""

    came_ns: int


Step = Sleep | SleepUntil | Allocate | Free | Compute | Mark | Begin | Answer


def program_of(job: JobTable) -> Iterator[Step]:
    """The steps of a job. Alike for each call."""
    work = job.work
    chance = Random(f"{work.seed}/{job.name}")  # a text: two jobs with one seed are not alike
    if job.persistent_bytes:
        yield Allocate(job.persistent_bytes)
    if isinstance(work, TrainingTable):
        yield from _train(work, job.ephemeral_bytes, chance)
    else:
        yield from _serve(work, job.ephemeral_bytes, chance)


def _train(work: TrainingTable, ephemeral_bytes: int, chance: Random) -> Iterator[Step]:
    """What the host does alone, such as loading data, comes before the GPU's part."""
    host_ns = work.host_ns
    for _ in range(work.iterations):
        factor = _factor(work.variation, chance)
        yield Sleep(round(host_ns * factor))
        yield from _on_gpu(work, factor, ephemeral_bytes)
        yield Mark(is_told=work.marks)


def _serve(work: ServingTable, ephemeral_bytes: int, chance: Random) -> Iterator[Step]:
    """One after the other, in order of their coming."""
    for came_ns in _arrivals(work, chance):
        factor = _factor(work.variation, chance)
        yield SleepUntil(came_ns)
        yield Begin()
        yield Sleep(round(work.host_ns * factor))
        yield from _on_gpu(work, factor, ephemeral_bytes)
        yield Answer(came_ns)


def _arrivals(work: ServingTable, chance: Random) -> Iterator[int]:
    if work.rate is None:
        yield from work.arrivals_ns
        return
    coming = Random(chance.random())  # whether or not requests vary, they come at the same times
    due_ns = 0.0
    while (due_ns := due_ns + coming.expovariate(work.rate) * 1e9) < work.duration_ns:
        yield int(due_ns)


def _on_gpu(work: WorkTable, factor: float, ephemeral_bytes: int) -> Iterator[Step]:
    if ephemeral_bytes:
        yield Allocate(ephemeral_bytes)
    yield Compute(max(1, round(work.gpu_ns * factor)), work.kernel_ns)
    if ephemeral_bytes:
        yield Free(ephemeral_bytes)


def _factor(variation: float, chance: Random) -> float:
    return 1 + variation * chance.uniform(-1, 1) if variation else 1.0
