"""What one marker costs, from the rounds of marker_cost.cpp."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

SEGMENT_US = 100.0  # the shim puts a marker after about this much work (shim/stream/segments.h)
LIMIT_PCT = 3.0  # of a segment; if writes cost more, events are used instead
NONE = "none"
# The run that the verdict uses: with 64 of 256 launches marked, noise matters little.
JUDGED = "every_4"

Rounds = Mapping[str, Mapping[str, Sequence[float]]]  # name of a run -> host_ns, device_us


def costs(rounds: Rounds) -> dict[str, Any]:
    """For one kernel, the cost of a launch without markers, and what each kind of marker adds."""
    bare = rounds[NONE]
    figures: dict[str, Any] = {
        NONE: {
            "host_ns": round(statistics.median(bare["host_ns"]), 1),
            "device_us": round(statistics.median(bare["device_us"]), 4),
        }
    }
    for name, marked in rounds.items():
        if name == NONE:
            continue
        kind, every = name.rsplit("_", 1)
        figures.setdefault(kind, {})[f"every_{every}"] = _added(bare, marked, int(every))
    return figures


def _added(
    bare: Mapping[str, Sequence[float]], marked: Mapping[str, Sequence[float]], every: int
) -> dict[str, float]:
    """Medians of the differences within rounds, in which drift of the machine cancels out."""
    host_ns = _median_difference(marked["host_ns"], bare["host_ns"])
    device_us = _median_difference(marked["device_us"], bare["device_us"])
    return {
        "host_ns_per_launch": round(host_ns, 1),
        "device_us_per_launch": round(device_us, 4),
        "host_ns_per_marker": round(host_ns * every, 1),
        "device_us_per_marker": round(device_us * every, 4),
        "host_pct_of_segment": round(host_ns * every / (SEGMENT_US * 1e3) * 100, 3),
        "device_pct_of_segment": round(device_us * every / SEGMENT_US * 100, 3),
    }


def _median_difference(these: Sequence[float], those: Sequence[float]) -> float:
    return statistics.median(a - b for a, b in zip(these, those, strict=True))


def verdict(cost: Mapping[str, Any]) -> dict[str, Any]:
    """Each kind's share of a segment, the largest over the kernels; and whether to use events."""
    shares = {
        kind: {side: _largest(cost, kind, f"{side}_pct_of_segment") for side in ("host", "device")}
        for kind in ("write", "event", "timed_pair")
        if any(kind in kernel for kernel in cost.values())
    }
    totals = {kind: max(sides.values()) for kind, sides in shares.items()}
    cheap = [kind for kind in ("write", "event") if kind in totals]
    return {
        "segment_us": SEGMENT_US,
        "limit_pct": LIMIT_PCT,
        **{f"{kind}_pct": sides for kind, sides in shares.items()},
        "cheaper": min(cheap, key=totals.__getitem__) if cheap else "neither can be had",
        # The design's rule: memory operations, unless they cost more than the limit.
        "events_instead": totals.get("write", float("inf")) > LIMIT_PCT,
    }


def _largest(cost: Mapping[str, Any], kind: str, figure: str) -> float:
    return max(float(kernel[kind][JUDGED][figure]) for kernel in cost.values() if kind in kernel)


def pairs(medians: Mapping[str, Any]) -> dict[str, Any]:
    """From marker_pair.cpp, how much of two kernels' overlap is left with a marker between them.

    1 means all of it, 0 none. If there is no overlap without a marker, there is nothing to lose.
    """
    figures = dict(medians)
    won_us = medians["serial_us"] - medians["programmatic_us"]
    overlaps = won_us > 0.1 * medians["serial_us"]
    figures["overlaps"] = overlaps
    for kind in ("write", "event", "timed_event"):
        with_us = medians.get(f"with_{kind}_us")
        if with_us is None:
            continue
        left = (medians["serial_us"] - with_us) / won_us if overlaps else "no overlap to lose"
        figures[f"left_with_{kind}"] = round(left, 3) if isinstance(left, float) else left
    return figures
