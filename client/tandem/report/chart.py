"""Charts of a GPU's memory as SVG: stacked areas, and lanes of what was computed and moved.

All charts of a page share a time axis. All text from a job is escaped.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from tandem._page import hue, plain, time_text
from tandem._results import JobPart, MemoryCurve
from tandem.report.series import Moment, Swap, swaps_of, work_of
from tandem.units import format_bytes

WIDTH, LEFT, RIGHT = 1200, 110, 14
_HEIGHT, _TOP, _LANE, _BELOW = 220, 14, 34, 24
_LEAST_LEVELS, _TICKS = 3, 8

Values = Callable[[Moment], Sequence[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """The time interval that is shown."""

    begin_ns: int
    end_ns: int

    def x(self, at_ns: int) -> float:
        """The x position of a moment."""
        part = (at_ns - self.begin_ns) / max(1, self.end_ns - self.begin_ns)
        return LEFT + min(1.0, max(0.0, part)) * (WIDTH - LEFT - RIGHT)

    def lines(self, height: int) -> Iterator[str]:
        """Ticks, labelled with how long before the end they are."""
        for tick in range(_TICKS + 1):
            ago_ns = (self.end_ns - self.begin_ns) * (_TICKS - tick) // _TICKS
            x = self.x(self.end_ns - ago_ns)
            anchor = "end" if tick == _TICKS else "middle"
            text = f"\u2212{time_text(float(f'{ago_ns:.3g}'))}" if ago_ns else "end"
            yield (
                f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{height - _BELOW}"/>'
                f'<text class="tick" x="{x:.1f}" y="{height - 6}" text-anchor="{anchor}">{text}'
                "</text>"
            )


def name_of(job: MemoryCurve | JobPart) -> str:
    """The job's display name."""
    return plain(f"{job.job} {job.display_name}".strip())


def areas(
    moments: Sequence[Moment],
    axis: Axis,
    stacks: Sequence[tuple[str, Values]],
    *,
    capacity_bytes: int = 0,
    label: Callable[[int], str] = format_bytes,
) -> str:
    """Stack an area for each job, one `stacks` entry (class and values) on top of the other.

    A capacity is drawn as a line, and the scale reaches up to it. The values need not be bytes:
    `label` formats them.
    """
    totals = [sum(sum(values(m)) for _, values in stacks) for m in moments]
    step_bytes = _step(max(_LEAST_LEVELS, capacity_bytes, *totals))
    levels = -(-max(1, capacity_bytes, *totals) // step_bytes)
    top_bytes = levels * step_bytes
    parts = [_levels(levels, step_bytes, label), *axis.lines(_HEIGHT)]
    below = [0] * len(moments)
    for look, values in stacks:
        for job in range(len(values(moments[0]))):
            above = [base + values(m)[job] for base, m in zip(below, moments, strict=True)]
            if above != below:
                path = _area(moments, axis, below, above, top_bytes)
                parts.append(f'<path class="{look}" style="--hue:{hue(job)}" d="{path}"/>')
            below = above
    if capacity_bytes:
        y = _y(capacity_bytes, top_bytes)
        parts.append(f'<line class="limit" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
    return _svg("".join(parts), _HEIGHT)


def _step(most_bytes: int) -> int:
    # The distance between levels is a power of two.
    return 1 << (most_bytes // _LEAST_LEVELS).bit_length() - 1


def _levels(count: int, step_bytes: int, label: Callable[[int], str]) -> str:
    levels = []
    for level in range(count + 1):
        size = level * step_bytes
        y = _y(size, count * step_bytes)
        levels.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>'
            f'<text class="tick" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">'
            f"{label(size)}</text>"
        )
    return "".join(levels)


def _area(
    moments: Sequence[Moment],
    axis: Axis,
    below: Sequence[int],
    above: Sequence[int],
    top_bytes: int,
) -> str:
    # Steps: each moment holds until the next.
    xs = [axis.x(moment.at_ns) for moment in moments]
    upper: list[str] = []
    lower: list[str] = []
    for place, x in enumerate(xs):
        until = xs[place + 1] if place + 1 < len(xs) else x
        for points, values in ((upper, above), (lower, below)):
            y = _y(values[place], top_bytes)
            points += [f"{x:.1f} {y}", f"{until:.1f} {y}"]
    return f"M{'L'.join(upper)}L{'L'.join(reversed(lower))}Z"


def _y(size: int, top_bytes: int) -> float:
    height = _HEIGHT - _TOP - _BELOW
    return round(_TOP + height * (1 - size / top_bytes), 1)


def lanes(curves: Sequence[MemoryCurve], axis: Axis) -> str:
    """A lane for each job: computation above, darker for more, and moved memory below."""
    height = _TOP + len(curves) * _LANE + _BELOW
    parts = list(axis.lines(height))
    for place, curve in enumerate(curves):
        top = _TOP + place * _LANE
        short = plain(curve.display_name or curve.job)[:14]
        parts.append(
            f'<g style="--hue:{hue(place)}"><text class="name" x="8" y="{top + 18}">'
            f"{escape(short)}<title>{escape(name_of(curve))}</title></text>"
        )
        for work in work_of(curve):
            about = f"{name_of(curve)} computed {work.share:.0%} of the time"
            x, width = _extent(axis, work.start_ns, work.end_ns)
            parts.append(
                f'<rect class="work" x="{x:.1f}" y="{top + 3}" width="{width:.1f}" height="16" '
                f'fill-opacity="{0.15 + 0.85 * work.share:.2f}">'
                f"<title>{escape(about)}</title></rect>"
            )
        parts += [_swap(swap, curve, axis, top) for swap in swaps_of(curve)]
        parts.append("</g>")
    return _svg("".join(parts), height)


def _swap(swap: Swap, curve: MemoryCurve, axis: Axis, top: int) -> str:
    x, width = _extent(axis, swap.start_ns, swap.end_ns)
    way, look = ("to the host", "out") if swap.is_out else ("back to the gpu", "back")
    about = (
        f"{name_of(curve)}: {format_bytes(swap.size_bytes)} {way} within "
        f"{time_text(swap.end_ns - swap.start_ns)}"
    )
    return (
        f'<rect class="swap {look}" x="{x:.1f}" y="{top + 20}" width="{width:.1f}" height="9">'
        f"<title>{escape(about)}</title></rect>"
    )


def _extent(axis: Axis, start_ns: int, end_ns: int) -> tuple[float, float]:
    x = axis.x(start_ns)
    return x, max(2.0, axis.x(end_ns) - x)


def _svg(inside: str, height: int) -> str:
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {height}" role="img">{inside}'
        f'<line class="here" y1="{_TOP}" y2="{height - _BELOW}" x1="-9" x2="-9"/></svg>'
    )
