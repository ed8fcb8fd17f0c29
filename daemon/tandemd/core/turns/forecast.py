"""How wide a window is worth while the gaps of more urgent work are short.

A request finds what the window let through in front of it. Where the gap that it ends was too short
for more anyway, a window of one segment costs best-effort work next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from tandemd.core.model import Group, Options
from tandemd.core.policies.policy import Policy

NARROW = 1  # segments
HYSTERESIS = 2  # short gaps stay so until they are this much longer


def short_gap_ns(options: Options) -> int:
    """Below this a gap is short: it has no room for a whole window and one segment more."""
    return (options.window_segments + 1) * options.segment_ns


def has_short_gaps(group: Group, options: Options) -> bool:
    """Whether others had better expect little time; of gaps that are not known nothing is said."""
    limit_ns = short_gap_ns(options) * (HYSTERESIS if group.short_gaps else 1)
    return 0 < group.gap_p50_ns < limit_ns


def narrowed_by(
    group: Group, island: Iterable[Group], *, policy: Policy, options: Options
) -> list[Group]:
    """The groups for whose gaps the group has a narrow window."""
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
