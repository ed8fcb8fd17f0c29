"""The lines of `tandem top`: for a job, the columns of `tandem ps` with memory split up."""

from collections.abc import Sequence
from dataclasses import dataclass

from tandem._results import Gpu, Job
from tandem.cli import ps
from tandem.units import format_bytes

_PARTS = ("RESIDENT", "SWAPPED", "QUOTA", "WAITING")
_LEFT_OUT = ("mem", "swap", *ps.SELDOM)
_NAMES = tuple(ps.COLUMNS)
_AT = _NAMES.index("mem")
_BEFORE = [ps.COLUMNS[name] for name in _NAMES[:_AT]]
_BEHIND = [ps.COLUMNS[name] for name in _NAMES[_AT:] if name not in _LEFT_OUT]

HEADER = (*(c.header for c in _BEFORE), *_PARTS, *(c.header for c in _BEHIND))
FIGURES = (*_PARTS, *(c.header for c in (*_BEFORE, *_BEHIND) if c.is_figure))


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A snapshot of the jobs and GPUs."""

    jobs: tuple[Job, ...]
    gpus: tuple[Gpu, ...]
    now_ns: int  # since 1970


def row(job: Job, *, now_ns: int) -> tuple[str, ...]:
    """Format a job; WAITING is the size an allocation waits for, and its place in line."""
    waiting = format_bytes(job.memory_wait_bytes)
    parts = (
        format_bytes(job.resident_bytes),
        ps.COLUMNS["swap"].text(job, now_ns),
        ps.quota(job),
        f"{waiting} #{job.memory_wait_place}" if job.memory_wait_bytes else "-",
    )
    before, behind = ([c.text(job, now_ns) for c in part] for part in (_BEFORE, _BEHIND))
    return (*before, *parts, *behind)


def gpu_line(gpu: Gpu, jobs: Sequence[Job]) -> str:
    """Summarize a GPU: its load, and its memory used, swapped and waited for."""
    here = [job for job in jobs if job.gpu == gpu.name]
    swapped = sum(job.swapped_bytes for job in here)
    waiting = sum(job.memory_wait_bytes for job in here)
    parts = [
        f"gpu {gpu.name} {gpu.product_name}, mode {gpu.mode}: busy {gpu.busy_ratio:.0%}",
        f"memory {format_bytes(gpu.memory_used_bytes)} of {format_bytes(gpu.memory_total_bytes)}",
    ]
    if swapped:
        parts.append(f"on the host {format_bytes(swapped)}")
    if waiting:
        parts.append(f"waited for {format_bytes(waiting)}")
    return ", ".join(parts)
