"""Charts of how jobs scale with a GPU's SMs: the speed curve, its knee, and the actual speed.

Speed is that of iterations, relative to the curve's value on all SMs. All text from a job is
escaped.
"""

from collections.abc import Iterator, Sequence
from html import escape

from tandem._page import Cell, hue, span, time_text
from tandem._results import JobPart, Partition, ScalingCurve
from tandem.report.chart import LEFT, RIGHT, WIDTH, name_of

HEADER = (
    *("job", "gpu", "SMs it has", "knee", "keeps its limit", "fits", "told"),
    *("predicted", "iteration", "predicted is off by"),
)
_HEIGHT, _TOP, _BELOW = 240, 14, 24
_LEVELS, _TICKS = 4, 8


def drawn(partition: Partition) -> list[JobPart]:
    """The jobs on a GPU whose curves are known."""
    return [job for job in partition.jobs if job.scaling is not None]


def chart(partition: Partition) -> str:
    """The curves of all jobs on a GPU: a ring on the knee, a square where it was recorded.

    A cross shows where the job is now: its SMs and the length of its iterations.
    """
    sms = max(1, partition.gpu.sm_count)
    parts = [*_grid(sms)]
    for place, job in enumerate(drawn(partition)):
        about = f"<title>{escape(name_of(job))}</title>"
        parts.append(f'<g style="--hue:{hue(place)}">{about}{"".join(_job(job, sms))}</g>')
    return (
        f'<svg class="chart scaling" viewBox="0 0 {WIDTH} {_HEIGHT}" role="img">'
        f"{''.join(parts)}</svg>"
    )


def rows(partitions: Sequence[Partition]) -> list[tuple[Cell, ...]]:
    """One row, with the columns of HEADER, for each job with a curve."""
    return [_row(job, one) for one in partitions for job in drawn(one)]


def _row(job: JobPart, partition: Partition) -> tuple[Cell, ...]:
    curve = job.scaling
    assert curve is not None
    predicted_ns, measured_ns = job.predicted_ns or 0, job.measured_ns or 0
    off = abs(predicted_ns / measured_ns - 1) if predicted_ns and measured_ns else -1.0
    return (
        name_of(job),
        partition.gpu.name,
        _sms(job.given_sms),
        _sms(curve.knee_sms),
        _sms(job.required_sms),
        _sms(job.proposed_sms or None),
        f"{curve.source} from {curve.recorded_sms} SMs",
        span(predicted_ns) if predicted_ns else (-1.0, "-"),
        span(measured_ns) if measured_ns else (-1.0, "-"),
        (off, f"{off:.1%}" if off >= 0 else "-"),
    )


def _sms(count: int | None) -> Cell:
    return (float(count), str(count)) if count else (-1.0, "-")


def _grid(sms: int) -> Iterator[str]:
    for level in range(_LEVELS + 1):
        y = _y(level / _LEVELS)
        yield (
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>'
            f'<text class="tick" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">'
            f"{level / _LEVELS:.0%}</text>"
        )
    for count in sorted({sms * tick // _TICKS for tick in range(_TICKS + 1)}):
        x = _x(count, sms)
        yield f'<text class="tick" x="{x}" y="{_HEIGHT - 6}" text-anchor="middle">{count}</text>'


def _job(job: JobPart, sms: int) -> Iterator[str]:
    curve = job.scaling
    assert curve is not None
    best_ns = curve.iteration_ns[-1]
    points = [
        (count, best_ns / time_ns)
        for count, time_ns in zip(curve.sm_counts, curve.iteration_ns, strict=True)
    ]
    path = "L".join(f"{_x(count, sms)} {_y(speed)}" for count, speed in [(0, 0.0), *points])
    yield f'<path class="curve" d="M{path}"/>'
    knee = dict(points).get(curve.knee_sms, 0.0)
    yield (
        f'<circle class="knee" cx="{_x(curve.knee_sms, sms)}" cy="{_y(knee)}" r="6">'
        f"<title>{escape(name_of(job))}: knee at {curve.knee_sms} SMs</title></circle>"
    )
    yield _recorded(curve, best_ns, sms)
    if job.given_sms and job.measured_ns:
        yield _now(job.given_sms, best_ns / job.measured_ns, job.measured_ns, sms)


def _recorded(curve: ScalingCurve, best_ns: int, sms: int) -> str:
    x, y = _x(curve.recorded_sms, sms), _y(best_ns / max(1, curve.recorded_ns))
    about = f"recorded on {curve.recorded_sms} SMs: {time_text(curve.recorded_ns)}"
    return (
        f'<rect class="recorded" x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8">'
        f"<title>{about}</title></rect>"
    )


def _now(given: int, speed: float, measured_ns: int, sms: int) -> str:
    x, y = _x(given, sms), _y(speed)
    cross = f"M{x - 6:.1f} {y - 6:.1f}l12 12m0 -12l-12 12"
    about = f"now, on {given} SMs: {time_text(measured_ns)}"
    return f'<path class="now" d="{cross}"><title>{about}</title></path>'


def _x(count: int, sms: int) -> float:
    return round(LEFT + min(1.0, count / sms) * (WIDTH - LEFT - RIGHT), 1)


def _y(speed: float) -> float:
    return round(_TOP + (_HEIGHT - _TOP - _BELOW) * (1 - min(1.0, max(0.0, speed))), 1)
