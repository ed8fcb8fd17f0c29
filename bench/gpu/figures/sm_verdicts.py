"""Draws conclusions from lists of SMs and of times: pure functions for the part `sm_sets`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

Span = tuple[int, int]
Groups = Mapping[str, Sequence[int]]  # the SMs that each group of a split was seen to run on


def judge_groups(first: Groups, second: Groups) -> dict[str, Any]:
    """Compare two processes that split alike and each examined all groups."""
    same = set(first) == set(second) and all(set(first[i]) == set(second[i]) for i in first)
    within = len(first) > 1 and all(set(sms) == set(range(len(set(sms)))) for sms in first.values())
    return {
        "numbered_within_each": within,  # then numbers do not tell which SMs these are
        "groups": len(first),
        "sms_per_group": sorted({len(set(sms)) for sms in first.values()}),
        "sms_in_groups": len({sm for sms in first.values() for sm in sms}),
        "same_index_same_sms": same,
        "disjoint_in_a_process": _are_disjoint(first) and _are_disjoint(second),
        "disjoint_across": all(
            set(first[i]).isdisjoint(second[j]) for i in first for j in second if i != j
        ),
        "ids": [sorted(set(first[i])) for i in sorted(first, key=int)],
    }


def judge_full(alone: float, apart: Sequence[float], same: Sequence[float]) -> dict[str, float]:
    """Ratio of SM-filling kernels' time beside those of another process to their time alone.

    About 1 if the two processes share no SM, 2 if they share all. Times are in us.
    """
    return {
        "alone_us": round(alone, 3),
        "apart_ratio": round(max(apart) / alone, 4),
        "same_ratio": round(min(same) / alone, 4),
    }


def _are_disjoint(groups: Groups) -> bool:
    return all(set(a).isdisjoint(b) for a, b in combinations(groups.values(), 2))


def spans_of(flat: Sequence[int]) -> list[Span]:
    """Pair up alternating begins and ends, in order of time."""
    return sorted(zip(flat[::2], flat[1::2], strict=True))


def judge_overlap(first: Sequence[Span], second: Sequence[Span]) -> dict[str, float]:
    """Of the time in which both processes had work, the shares in which each ran, and both did.

    All are zero if the two never had work at the same time.
    """
    if not first or not second:
        return dict.fromkeys(("window_ms", "first", "second", "both", "longest_turn_ms"), 0.0)
    begin = max(first[0][0], second[0][0])
    end = min(max(e for _, e in first), max(e for _, e in second))
    window_ns = max(end - begin, 0)

    def share(spans: Sequence[Span]) -> float:
        inside = sum(max(0, min(e, end) - max(b, begin)) for b, e in spans)
        return round(inside / window_ns, 4) if window_ns else 0.0

    together = [
        (max(a, c), min(b, d)) for a, b in first for c, d in second if max(a, c) < min(b, d)
    ]
    return {
        "window_ms": round(window_ns / 1e6, 3),
        "first": share(first),
        "second": share(second),
        "both": share(together),
        "longest_turn_ms": round(max(e - b for b, e in first) / 1e6, 3),
    }


def with_curves(said: Mapping[str, Any]) -> dict[str, Any]:
    """The measurement with the curve of each kernel added."""
    return {**said, **curves(said["times_us"])}


def curves(times_us: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Each kernel's time on so many SMs relative to all SMs; refused sets are left out."""
    whole = times_us["all"]
    if "error" in whole:
        return {}
    return {
        kernel: {
            name: round(times[kernel] / whole[kernel], 4)
            for name, times in times_us.items()
            if isinstance(times, Mapping) and kernel in times and whole[kernel]
        }
        for kernel in whole
    }
