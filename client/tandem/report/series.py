"""Turns the daemon's curves into moves to the host and back, work, and moments to draw."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import itemgetter

from tandem._results import MemoryCurve, MemoryHistory, MemoryPoint

LOOK_NS = 100_000_000  # the daemon's period: a change began at most this long before it was seen
MOST_MOMENTS = 800  # in a drawing, which may have twice as many


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """Memory that moved between the GPU and the host."""

    start_ns: int
    end_ns: int
    size_bytes: int
    is_out: bool  # to the host


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """An interval in which a job computed."""

    start_ns: int
    end_ns: int
    share: float  # of the GPU's time, from 0 to 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What the jobs of a GPU hold from `at_ns` on, in the order of the curves."""

    at_ns: int
    resident_bytes: tuple[int, ...]
    swapped_bytes: tuple[int, ...]
    waiting_bytes: tuple[int, ...]


def since(history: MemoryHistory, begin_ns: int) -> MemoryHistory:
    """The part of the history from `begin_ns` on, without curves that ended before."""
    curves = (replace(c, points=_since(c.points, begin_ns)) for c in history.curves)
    return replace(history, curves=tuple(curve for curve in curves if curve.points))


def _since(points: Sequence[MemoryPoint], begin_ns: int) -> tuple[MemoryPoint, ...]:
    before = [point for point in points if point.time_ns < begin_ns]
    later = points[len(before) :]
    if not before or (not later and not _holds(before[-1])):
        return tuple(later)
    return (_at(begin_ns, before[-1], later[0] if later else before[-1]), *later)


def _at(at_ns: int, before: MemoryPoint, after: MemoryPoint) -> MemoryPoint:
    """The state at `before`, with the times computed between the two points interpolated."""
    length_ns = after.time_ns - before.time_ns
    ratio = (at_ns - before.time_ns) / length_ns if length_ns else 0.0
    return replace(
        before,
        time_ns=at_ns,
        gpu_time_ns=before.gpu_time_ns + round(ratio * (after.gpu_time_ns - before.gpu_time_ns)),
        sm_time_ns=before.sm_time_ns + round(ratio * (after.sm_time_ns - before.sm_time_ns)),
    )


def _holds(point: MemoryPoint) -> bool:
    return bool(point.resident_bytes or point.swapped_bytes or point.waiting_bytes)


def swaps_of(curve: MemoryCurve) -> list[Swap]:
    """The moves of a curve; two in one direction are merged if at most one look is in between."""
    found: list[Swap] = []
    for before, after in pairwise(curve.points):
        moved = after.swapped_bytes - before.swapped_bytes
        if not moved or not _holds(after):  # a job that has ended moved nothing
            continue
        start_ns = max(before.time_ns, after.time_ns - LOOK_NS)
        last = found[-1] if found else None
        swap = Swap(
            start_ns=start_ns, end_ns=after.time_ns, size_bytes=abs(moved), is_out=moved > 0
        )
        if last and last.is_out is swap.is_out and last.end_ns + LOOK_NS >= start_ns:
            size = last.size_bytes + swap.size_bytes
            found[-1] = replace(last, end_ns=swap.end_ns, size_bytes=size)
        else:
            found.append(swap)
    return found


def work_of(curve: MemoryCurve) -> list[Work]:
    """The intervals between points in which the job got GPU time."""
    return [
        Work(
            start_ns=before.time_ns,
            end_ns=after.time_ns,
            share=min(1.0, (after.gpu_time_ns - before.gpu_time_ns) / length_ns),
        )
        for before, after in pairwise(curve.points)
        if after.gpu_time_ns > before.gpu_time_ns and (length_ns := after.time_ns - before.time_ns)
    ]


def moments_of(
    curves: Sequence[MemoryCurve], end_ns: int, *, most: int = MOST_MOMENTS
) -> list[Moment]:
    """All moments at which anything changed, in order, and the end.

    If there are too many, of those close together only two are kept: the one with most on the GPU,
    and the one with most elsewhere.
    """
    moments = list(_moments(curves))
    if not moments:
        return []
    if len(moments) > most:
        moments = _thinned(moments, most)
    return [*moments, replace(moments[-1], at_ns=max(end_ns, moments[-1].at_ns))]


def occupation_of(curves: Sequence[MemoryCurve], *, most: int = MOST_MOMENTS) -> list[Moment]:
    """Moments with SMs in place of resident bytes: means between two points of a job, 0 at the end.

    Empty if no SM time was counted.
    """
    held = [_held_sms(curve) for curve in curves]
    if not any(any(sms for _, sms in steps) for steps in held):
        return []
    changes = sorted((at_ns, i, sms) for i, steps in enumerate(held) for at_ns, sms in steps)
    moments: dict[int, tuple[int, ...]] = {}
    now = [0] * len(curves)
    for at_ns, which, sms in changes:
        now[which] = sms
        moments[at_ns] = tuple(now)
    nothing = (0,) * len(curves)
    found = [
        Moment(at_ns=at_ns, resident_bytes=sms, swapped_bytes=nothing, waiting_bytes=nothing)
        for at_ns, sms in moments.items()
    ]
    return found if len(found) <= most else _thinned(found, most)


def _held_sms(curve: MemoryCurve) -> list[tuple[int, int]]:
    steps = [
        (
            before.time_ns,
            round((after.sm_time_ns - before.sm_time_ns) / (after.time_ns - before.time_ns)),
        )
        for before, after in pairwise(curve.points)
        if after.time_ns > before.time_ns
    ]
    return [*steps, (curve.points[-1].time_ns, 0)]


def _moments(curves: Sequence[MemoryCurve]) -> Iterator[Moment]:
    changes = [(p.time_ns, i, p) for i, curve in enumerate(curves) for p in curve.points]
    changes.sort(key=itemgetter(0, 1))
    held: list[MemoryPoint | None] = [None] * len(curves)
    for place, (at_ns, which, point) in enumerate(changes):
        held[which] = point
        if place + 1 == len(changes) or changes[place + 1][0] != at_ns:
            yield Moment(
                at_ns=at_ns,
                resident_bytes=tuple(p.resident_bytes if p else 0 for p in held),
                swapped_bytes=tuple(p.swapped_bytes if p else 0 for p in held),
                waiting_bytes=tuple(p.waiting_bytes if p else 0 for p in held),
            )


def _thinned(moments: Sequence[Moment], most: int) -> list[Moment]:
    begin_ns = moments[0].at_ns
    width_ns = (moments[-1].at_ns - begin_ns) // most + 1
    buckets: dict[int, list[Moment]] = {}
    for moment in moments:
        buckets.setdefault((moment.at_ns - begin_ns) // width_ns, []).append(moment)
    kept = []
    for bucket in buckets.values():
        fullest = max(bucket, key=lambda m: sum(m.resident_bytes))
        away = max(bucket, key=lambda m: sum(m.swapped_bytes) + sum(m.waiting_bytes))
        kept += sorted({m.at_ns: m for m in (fullest, away)}.values(), key=lambda m: m.at_ns)
    return kept
