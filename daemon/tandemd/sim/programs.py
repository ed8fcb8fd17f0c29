"""What the programs of jobs do, step by step; the durations come out elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from tandemd.sim.workload import JobTable, ServingTable, TrainingTable, WorkTable


@dataclass(frozen=True, slots=True)
class Sleep:
    """Submit nothing for this long."""

    for_ns: int


@dataclass(frozen=True, slots=True)
class SleepUntil:
    """Submit nothing until this time since the job came."""

    since_arrival_ns: int


@dataclass(frozen=True, slots=True)
class Allocate:
    """Allocate GPU memory."""

    size_bytes: int


@dataclass(frozen=True, slots=True)
class Free:
    """Free GPU memory."""

    size_bytes: int


@dataclass(frozen=True, slots=True)
class Compute:
    """Submit work and wait for its end."""

    work_ns: int
    kernel_ns: int  # of each kernel in it


@dataclass(frozen=True, slots=True)
class Mark:
    """An iteration has ended; `is_told`: marked by `tandem.step()`, which the daemon sees."""

    is_told: bool


@dataclass(frozen=True, slots=True)
class Begin:
    """The program begins with a request (`tandem.slo`)."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The request is answered; it came at `came_ns` since the job came."""

    came_ns: int


Step = Sleep | SleepUntil | Allocate | Free | Compute | Mark | Begin | Answer


def program_of(job: JobTable) -> Iterator[Step]:
    """Yield the steps of a job, the same at each call."""
    work = job.work
    # Seeded with a text, so that two jobs with one seed differ.
    chance = Random(f"{work.seed}/{job.name}")
    if job.persistent_bytes:
        yield Allocate(job.persistent_bytes)
    if isinstance(work, TrainingTable):
        yield from _train(work, job.ephemeral_bytes, chance)
    else:
        yield from _serve(work, job.ephemeral_bytes, chance)


def _train(work: TrainingTable, ephemeral_bytes: int, chance: Random) -> Iterator[Step]:
    """Train: host-only work, such as loading data, comes before the GPU's part."""
    host_ns = work.host_ns
    for _ in range(work.iterations):
        factor = _factor(work.variation, chance)
        yield Sleep(round(host_ns * factor))
        yield from _on_gpu(work, factor, ephemeral_bytes)
        yield Mark(is_told=work.marks)


def _serve(work: ServingTable, ephemeral_bytes: int, chance: Random) -> Iterator[Step]:
    """Serve requests one after the other, in order of arrival."""
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
    # Its own generator: arrivals do not depend on whether requests vary.
    coming = Random(chance.random())
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
