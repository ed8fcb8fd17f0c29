"""Explains why the lanes keep a job off the GPU or between its iterations."""

from __future__ import annotations

from tandemd.core.explain.memory import ordinal
from tandemd.core.lanes.places import Standing
from tandemd.core.model import Group, GroupKey
from tandemd.core.scheduler import Scheduler
from tandemd.core.words import size_of


def explain_lane(standing: Standing, scheduler: Scheduler) -> str:
    """What a group that the lanes bar is waiting for; one sentence."""
    group, lanes = standing.group, standing.lanes
    if not lanes.is_admitted(group.key):
        return _explain_line(standing, scheduler)
    other = lanes.running_with(group.key)
    if other is None:
        return "between two iterations: it has not begun the next one"
    why = "which runs alone to be measured" if other in lanes.alone else "which shares its lane"
    return f"waits for its next iteration: that of {_title(other, scheduler)}, {why}, is not over"


def lane_lines(standing: Standing) -> list[str]:
    """The need with which the group was admitted."""
    group, lanes = standing.group, standing.lanes
    need = lanes.need_of(group.key)
    if need is None or group.key in lanes.alone:
        limit = size_of(group.memory_limit_bytes) if lanes.is_admitted(group.key) else "nothing yet"
        return [
            f"what it needs is not known, so no other job runs an iteration; it may use {limit}"
        ]
    how = "known" if standing.is_known else "not known yet, counted as its limit"
    told = (
        f"{size_of(need.persistent_bytes)} for good, {size_of(need.ephemeral_bytes)} an iteration"
    )
    beside = next((lane - {group.key} for lane in lanes.lanes if group.key in lane), frozenset())
    shares = f"; shares its lane with {_others(len(beside))}" if beside else ""
    return [f"its need of memory ({how}): {told}{shares}"]


def _others(count: int) -> str:
    return "one other" if count == 1 else f"{count} others"


def place_in_line(standing: Standing) -> tuple[int, int]:
    """The bytes it waits for and its place in line, from 1; zeros if it is admitted."""
    group, lanes = standing.group, standing.lanes
    if lanes.is_admitted(group.key):
        return 0, 0
    need = lanes.need_of(group.key)
    size_bytes = min(group.memory_limit_bytes, lanes.capacity_bytes)
    return need.peak_bytes if need else size_bytes, lanes.waiting.index(group.key) + 1


def _explain_line(standing: Standing, scheduler: Scheduler) -> str:
    group, lanes = standing.group, standing.lanes
    place = lanes.waiting.index(group.key)
    where = f"{ordinal(place + 1)} in line to come onto the gpu"
    if place:
        where += f" behind {_title(lanes.waiting[place - 1], scheduler)}"
    if lanes.alone:
        measured = _title(lanes.alone[0], scheduler)
        return f"{where}: no job is admitted until the need of {measured} is known"
    need = lanes.need_of(group.key)
    if need is None:
        return (
            f"{where}: what it needs is not known, and no memory is left to find out, because "
            "others may keep all of it"
        )
    missing_bytes = lanes.missing_bytes(group.key)
    missing = f"; {size_of(missing_bytes)} of that has to become free" if missing_bytes else ""
    return (
        f"{where} with {size_of(need.persistent_bytes)} for good and "
        f"{size_of(need.ephemeral_bytes)} an iteration{missing}"
    )


def _title(key: GroupKey, scheduler: Scheduler) -> str:
    group: Group | None = scheduler.groups.get(key)
    return group.title if group else "a job that has ended"
