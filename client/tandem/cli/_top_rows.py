"""The lines of `tandem top`: of a job the columns of `tandem ps`, with its memory told apart."""

from collections.abc import Sequence
from dataclasses import dataclass

from tandem._results import Gpu, Job
from tandem.cli import ps
from tandem.units import format_bytes

_MEMORY = "MEM(res/quota)"
_PARTS = ("RESIDENT", "SWAPPED", "QUOTA", "WAITING")
_REPLACED = (_MEMORY, "SWAP")
_AT = ps.HEADER.index(_MEMORY)

HEADER = (
    *ps.HEADER[:_AT],
    *_PARTS,
    *(name for name in ps.HEADER[_AT:-1] if name not in _REPLACED),
    "GROUP",
    ps.HEADER[-1],
)
FIGURES = (*_PARTS, *(name for name in ps.FIGURES if name not in _REPLACED))


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One look at the machine."""

    jobs: tuple[Job, ...]
    gpus: tuple[Gpu, ...]
    now_ns: int  # since 1970


def row(job: Job, *, now_ns: int) -> tuple[str, ...]:
    """One line; WAITING is what an allocation waits for, with its place in line."""
    cells = dict(zip(ps.HEADER, ps.row(job, now_ns=now_ns), strict=True))
    waiting = format_bytes(job.memory_wait_bytes)
    cells |= {
        "GROUP": job.group or "-",
        "RESIDENT": format_bytes(job.resident_bytes),
        "SWAPPED": cells["SWAP"],
        "QUOTA": ps.quota(job),
        "WAITING": f"{waiting} #{job.memory_wait_place}" if job.memory_wait_bytes else "-",
    }
    return tuple(cells[name] for name in HEADER)


def gpu_line(gpu: Gpu, jobs: Sequence[Job]) -> str:
    """What a GPU does, and how much of its memory is whose."""
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
