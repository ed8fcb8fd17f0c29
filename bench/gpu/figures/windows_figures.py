"""The figures of a configuration, from what both programs and the device observed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.gpu.figures.slices import (
    Ran,
    busy_ns,
    overlap_ns,
    quantile,
    runs_of,
    spread,
    turns_of,
)
from bench.gpu.figures.windows_rows import Row
from bench.gpu.harness.beliefs import answer

LIMIT_RATIO = 1.5  # of the server's p99 to alone, while the other has one 200 us kernel submitted


@dataclass(frozen=True, kw_only=True)
class Told:
    """One program's report: its launches in order, and when the device worked on them."""

    rows: Sequence[Row]
    kernels: Sequence[Ran]
    unfinished: int
    seconds: float
    clock_error_us: float
    gaps_lost: int  # for lack of space to record them
    deepest: int = 0  # the most launches submitted at a time
    longest_call_us: float = 0  # to submit a launch; the call waits if the driver's queue is full

    @property
    def latencies_ns(self) -> list[int]:
        """Times from arrival until the end was seen."""
        return [row.done_ns - row.arrival_ns for row in self.rows if row.done_ns]

    @property
    def rate_per_s(self) -> float:
        """Rate of kernels seen to end before the time was up; the rest ended while draining."""
        if not self.rows:
            return 0.0
        end_ns = self.rows[0].submitted_ns + int(self.seconds * 1e9)
        return sum(1 for row in self.rows if 0 < row.done_ns <= end_ns) / self.seconds


def server_figures(told: Told) -> dict[str, Any]:
    """The server's latencies in us."""
    latencies = told.latencies_ns
    if not latencies:
        return {"requests": 0, "unfinished": told.unfinished}
    return {
        "requests": len(latencies),
        "unfinished": told.unfinished,
        "p50_us": round(quantile(latencies, 0.5) / 1e3, 1),
        "p99_us": round(quantile(latencies, 0.99) / 1e3, 1),
    }


def together(
    server: Told, trainer: Told, server_alone: Told | None, trainer_alone: Told | None
) -> dict[str, Any]:
    """Both programs' figures, relative to alone where that is known, and how they shared."""
    own = server_figures(server)
    alone = server_figures(server_alone) if server_alone else {}
    alone_per_s = trainer_alone.rate_per_s if trainer_alone else 0
    return {
        **own,
        "p50_ratio": _over(own, alone, "p50_us"),
        "p99_ratio": _over(own, alone, "p99_us"),
        "trainer_per_s": round(trainer.rate_per_s, 2),
        "trainer_share": round(trainer.rate_per_s / alone_per_s, 4) if alone_per_s else None,
        "trainer_deepest": trainer.deepest,
        "trainer_longest_call_us": round(trainer.longest_call_us, 1),
        **sharing(server, trainer),
    }


def _over(these: Mapping[str, Any], those: Mapping[str, Any], figure: str) -> float | None:
    known = figure in these and figure in those
    return round(these[figure] / those[figure], 3) if known else None


def sharing(server: Told, trainer: Told) -> dict[str, Any]:
    """Slices, waits, switches and overlap, by the device's clock."""
    turns = turns_of(runs_of(server.kernels, trainer.kernels))
    server_ns = busy_ns(server.kernels)
    both_ns = overlap_ns(server.kernels, trainer.kernels)
    roles = ("server", "trainer")
    return {
        "slice_us": {r: spread(found) for r, found in zip(roles, turns.slices, strict=True)},
        "wait_us": {r: spread(found) for r, found in zip(roles, turns.waits, strict=True)},
        "switch_us": spread(turns.switches),
        "overlap_share": round(both_ns / server_ns, 4) if server_ns else None,
        "interrupted": {
            role: sum(len(kernel.stretches) > 1 for kernel in told.kernels)
            for role, told in zip(roles, (server, trainer), strict=True)
        },
        "gaps_lost": server.gaps_lost + trainer.gaps_lost,
        "clock_error_us": max(server.clock_error_us, trainer.clock_error_us),
    }


def both_figures(server: Told, trainer: Told) -> dict[str, Any]:
    """Figures with both running as fast as they can: rates, and how they took turns."""
    return {
        "server_per_s": round(server.rate_per_s, 2),
        "trainer_per_s": round(trainer.rate_per_s, 2),
        **sharing(server, trainer),
    }


def verdict(arms: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Whether windows alone are enough, by the design's rule.

    If one submitted kernel of 200 us still raises p99 by more than half with time slices, closing
    the gate and draining becomes the default.
    """
    ratios = {name: _ratio(arm) for name, arm in arms.items()}
    of_slices = ratios.get("time")
    return {
        "limit_ratio": LIMIT_RATIO,
        "p99_ratio_short_depth1": ratios,
        "exclusive_gating": "not measured" if of_slices is None else of_slices > LIMIT_RATIO,
    }


def _ratio(arm: Mapping[str, Any]) -> float | None:
    found = answer(arm, "short.depth1.p99_ratio")
    return found if isinstance(found, float) else None
