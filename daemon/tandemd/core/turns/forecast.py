"""How wide a window should be while more urgent work has only short gaps.

A request queues behind whatever the window let through. If the gap before it was too short for more
anyway, a window of one segment costs best-effort work next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from tandemd.core.model import Group, Options
from tandemd.core.policies.policy import Policy

NARROW = 1  # segments
HYSTERESIS = 2  # short gaps count as short until they are this many times longer


def short_gap_ns(options: Options) -> int:
    """Gaps below this are short: they have no room for a whole window plus one segment."""
    return (options.window_segments + 1) * options.segment_ns


def has_short_gaps(group: Group, options: Options) -> bool:
    """Tell whether the group leaves others little time; False if its gaps are not known."""
    limit_ns = short_gap_ns(options) * (HYSTERESIS if group.short_gaps else 1)
    return 0 < group.gap_p50_ns < limit_ns


def narrowed_by(
    group: Group, island: Iterable[Group], *, policy: Policy, options: Options
) -> list[Group]:
    """The groups whose short gaps narrow the window of `group`."""
    if not (options.forecast_gaps and options.window_segments > NARROW and policy.windowed(group)):
        return []
    overlap = options.overlaps(group.gpus)
    return [
        other
        for other in island
        if other.short_gaps
        and policy.yields_to(group, other, overlap=overlap)
        and (options.presence_across_users or other.key[0] == group.key[0])
    ]
