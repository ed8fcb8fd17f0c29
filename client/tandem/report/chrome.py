"""The history of memory as Chrome's trace-event JSON, for ui.perfetto.dev.

A process a GPU, with counters of what jobs hold, and a track a job with what it computed and what
was moved to the host and back.
"""

from typing import TextIO

from tandem._page import plain
from tandem._results import MemoryCurve, MemoryHistory
from tandem.chrome_trace import TraceWriter
from tandem.report.chart import name_of
from tandem.report.series import swaps_of, work_of
from tandem.units import format_bytes


def write(history: MemoryHistory, file: TextIO) -> None:
    """Write the whole history; times are those since 1970."""
    with TraceWriter(file) as trace:
        for gpu in history.gpus:
            trace.process(gpu.index + 1, plain(f"gpu {gpu.name} {gpu.product_name}"))
        for place, curve in enumerate(history.curves, 1):
            _write_job(curve, place, trace)


def _write_job(curve: MemoryCurve, place: int, trace: TraceWriter) -> None:
    pid, name = curve.gpu + 1, name_of(curve)
    computes, moves = 2 * place, 2 * place + 1
    trace.thread(pid, computes, f"{name} computes")
    for work in work_of(curve):
        trace.slice(
            pid,
            computes,
            f"{work.share:.0%} of the gpu",
            start_ns=work.start_ns,
            end_ns=work.end_ns,
            args={"share": work.share},
        )
    swaps = swaps_of(curve)
    if swaps:
        trace.thread(pid, moves, f"{name} is moved")
    for swap in swaps:
        way = "to the host" if swap.is_out else "back to the gpu"
        trace.slice(
            pid,
            moves,
            f"{format_bytes(swap.size_bytes)} {way}",
            start_ns=swap.start_ns,
            end_ns=swap.end_ns,
            args={"bytes": swap.size_bytes},
        )
    for point in curve.points:
        trace.counter(pid, f"{name} resident bytes", point.time_ns, point.resident_bytes)
        if swaps:
            trace.counter(pid, f"{name} swapped bytes", point.time_ns, point.swapped_bytes)
        if any(p.waiting_bytes for p in curve.points):
            trace.counter(pid, f"{name} waiting bytes", point.time_ns, point.waiting_bytes)
