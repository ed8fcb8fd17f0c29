"""Part `overhead`: a program alone, with and without Tandem, as throughput ratios.

Rounds alternate between bare and managed, so that drift of the machine meets both; the ratio is of
the medians. In a dry run the ratios say nothing and are not judged.
"""

from __future__ import annotations

import statistics
from typing import Any

from bench.gpu.part import GPU, Bench, main, say
from tandem.demo.scenario import Scenario
from tandem.demo.stats import rate_per_s

ROUNDS = 3
SECONDS = 8.0
# role -> lowest managed/bare throughput that is accepted
LIMITS = {"vision": 0.97, "language": 0.97, "vision-graph": 0.99}


def measure(bench: Bench) -> dict[str, Any]:
    """One ratio a role."""
    figures: dict[str, Any] = {}
    for role, limit in LIMITS.items():
        if bench.where != GPU and role.endswith("-graph"):
            continue
        figures[role] = _compare(bench, role, limit)
        say(f"{role}: {figures[role]['ratio']} of bare")
    good = all(f["ok"] for f in figures.values())
    return {"mode": bench.place.mode, **figures, "ok": good}


def _compare(bench: Bench, role: str, limit: float) -> dict[str, Any]:
    rates: dict[bool, list[float]] = {False: [], True: []}
    for number in range(ROUNDS if bench.where == GPU else 1):
        for managed in (False, True):
            rates[managed].append(_rate(bench, role, managed=managed, number=number))
    bare, managed_rate = (statistics.median(rates[m]) for m in (False, True))
    ratio = round(managed_rate / bare, 4)
    return {
        "bare_per_s": round(bare, 3),
        "managed_per_s": round(managed_rate, 3),
        "ratio": ratio,
        "limit": limit,
        "ok": ratio >= limit or bench.where != GPU,
    }


def _rate(bench: Bench, role: str, *, managed: bool, number: int) -> float:
    seconds = bench.seconds(SECONDS)
    with Scenario(
        name="managed" if managed else "bare",
        place=bench.place,
        program=bench.program(seconds=seconds),
        roles=[role],
        seconds=seconds,
        folder=bench.folder / f"{role}-{managed}-{number}",
        managed=managed,
    ) as scenario:
        return rate_per_s(scenario.run().workers[0].intervals)


if __name__ == "__main__":
    main(measure)
