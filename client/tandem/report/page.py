"""The memory history as one HTML page that needs no network."""

import json
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import TextIO

from tandem._page import SORTING, STYLE, Cell, fact, hue, note, plain, size, span, table, time_text
from tandem._results import Gpu, MemoryCurve, MemoryHistory, Partition
from tandem.report import scaling
from tandem.report.chart import LEFT, RIGHT, WIDTH, Axis, areas, lanes, name_of
from tandem.report.series import Moment, moments_of, occupation_of, swaps_of
from tandem.units import format_bytes

_TEMPLATE = Path(__file__).with_name("page.html")
_SCRIPT = Path(__file__).with_name("page.js")
_HEADER = (
    *("job", "gpu", "most on the gpu", "most on the host", "most in files"),
    *("moved to the host", "moved back", "most waited for", "gpu time"),
)


def write(history: MemoryHistory, file: TextIO, *, partitions: Sequence[Partition] = ()) -> None:
    """Write the page, even for a history without jobs."""
    axis = axis_of(history)
    names = {gpu.index: gpu.name for gpu in history.gpus}
    rows = [_row(curve, names.get(curve.gpu, str(curve.gpu))) for curve in history.curves]
    empty = [] if rows else ["No job has used a GPU in this time."]
    page = Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(
        title="Memory and SMs of all jobs" if partitions else "Memory of all jobs",
        style=STYLE,
        facts="".join(fact(name, value) for name, value in _facts(history, axis)),
        notes="".join(map(note, empty)),
        sections="".join((*_sections(history, axis), *map(_scaling, partitions))),
        tables=table("Jobs", _HEADER, rows)
        + table("How jobs scale", scaling.HEADER, scaling.rows(partitions)),
        script=_SCRIPT.read_text(encoding="utf-8"),
        sorting=SORTING,
    )
    file.write(page)


def axis_of(history: MemoryHistory) -> Axis:
    """The time from the earliest point to the end."""
    times = [curve.points[0].time_ns for curve in history.curves if curve.points]
    begin_ns = min([history.end_ns, *times])
    return Axis(begin_ns=begin_ns, end_ns=max(history.end_ns, begin_ns + 1))


def _facts(history: MemoryHistory, axis: Axis) -> Iterator[tuple[str, str]]:
    yield "time shown", time_text(axis.end_ns - axis.begin_ns)
    yield "jobs", str(len({curve.job for curve in history.curves}))
    moved = sum(s.size_bytes for curve in history.curves for s in swaps_of(curve))
    yield "moved to the host and back", format_bytes(moved)
    for gpu in history.gpus:
        moments = moments_of(_of(gpu, history), axis.end_ns)
        most = max((sum(m.resident_bytes) for m in moments), default=0)
        total = format_bytes(gpu.memory_total_bytes)
        yield f"most held of gpu {gpu.name}", f"{format_bytes(most)} of {total}"


def _of(gpu: Gpu, history: MemoryHistory) -> list[MemoryCurve]:
    return [curve for curve in history.curves if curve.gpu == gpu.index and curve.points]


def _sections(history: MemoryHistory, axis: Axis) -> Iterator[str]:
    for gpu in history.gpus:
        curves = _of(gpu, history)
        if curves:
            yield f'<section class="gpu">{"".join(_section(gpu, curves, axis))}</section>'


def _section(gpu: Gpu, curves: Sequence[MemoryCurve], axis: Axis) -> Iterator[str]:
    moments = moments_of(curves, axis.end_ns)
    held = [("held", lambda m: m.resident_bytes)]
    away = [("away", lambda m: m.swapped_bytes), ("wanted", lambda m: m.waiting_bytes)]
    title = f"gpu {gpu.name}: {plain(gpu.product_name)}, mode {gpu.mode}"
    yield f"<h2>{escape(title)}</h2>"
    yield f'<div class="keys">{"".join(_keys(curves))}</div>'
    yield _figure(
        f"On the GPU; the line marks its {format_bytes(gpu.memory_total_bytes)}",
        areas(moments, axis, held, capacity_bytes=gpu.memory_total_bytes),
    )
    if any(any(m.swapped_bytes) or any(m.waiting_bytes) for m in moments):
        yield _figure("On the host; pale: what allocations wait for", areas(moments, axis, away))
    if occupied := occupation_of(curves):
        yield _figure(
            f"SMs that kernels held, estimated from records; the line marks all {gpu.sm_count}",
            areas(occupied, axis, held, capacity_bytes=gpu.sm_count, label="{} SMs".format),
        )
    yield _figure("Computed, and below it moved", lanes(curves, axis))
    yield '<div class="about" aria-live="polite">Point at a chart.</div>'
    yield f'<script type="application/json">{_data(gpu, curves, moments, axis)}</script>'


def _scaling(partition: Partition) -> str:
    jobs = scaling.drawn(partition)
    if not jobs:
        return ""
    gpu = partition.gpu
    title = f"gpu {gpu.name}, mode {gpu.mode}: speed of iterations by SMs, told from records"
    keys = "".join(
        f'<span><i style="--hue:{hue(place)}"></i>{escape(name_of(job))}</span>'
        for place, job in enumerate(jobs)
    )
    marks = "ring: the knee; square: recorded; cross: now"
    return (
        f"<section><h2>{escape(title)}</h2>"
        f'<div class="keys">{keys}<span>{marks}</span></div>'
        f"{_figure('A part of the speed on all SMs', scaling.chart(partition))}</section>"
    )


def _keys(curves: Sequence[MemoryCurve]) -> Iterator[str]:
    for place, curve in enumerate(curves):
        yield f'<span><i style="--hue:{hue(place)}"></i>{escape(name_of(curve))}</span>'
    yield '<span><i class="limit"></i>capacity</span>'
    yield '<span><i class="out"></i>moved to the host</span>'
    yield '<span><i class="back"></i>moved back</span>'


def _figure(title: str, chart: str) -> str:
    return f"<figure><figcaption>{escape(title)}</figcaption>{chart}</figure>"


def _data(gpu: Gpu, curves: Sequence[MemoryCurve], moments: Sequence[Moment], axis: Axis) -> str:
    data = {
        "length_ns": axis.end_ns - axis.begin_ns,
        "capacity_bytes": gpu.memory_total_bytes,
        "names": [name_of(curve) for curve in curves],
        "moments": [
            [m.at_ns - axis.begin_ns, m.resident_bytes, m.swapped_bytes, m.waiting_bytes]
            for m in moments
        ],
        "width": WIDTH,
        "left": LEFT,
        "right": WIDTH - RIGHT,
    }
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")  # cannot end the script


def _row(curve: MemoryCurve, gpu: str) -> tuple[Cell, ...]:
    points, swaps = curve.points, swaps_of(curve)
    return (
        name_of(curve),
        gpu,
        size(max(point.resident_bytes for point in points)),
        size(max(point.swapped_bytes for point in points)),
        size(max(point.filed_bytes for point in points)),
        size(sum(swap.size_bytes for swap in swaps if swap.is_out)),
        size(sum(swap.size_bytes for swap in swaps if not swap.is_out)),
        size(max(point.waiting_bytes for point in points)),
        span(points[-1].gpu_time_ns - points[0].gpu_time_ns),
    )
