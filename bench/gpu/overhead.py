"""Part `overhead`: a program alone, with and without Tandem, as throughput ratios.

Rounds alternate between bare and managed, so that drift of the machine meets both; the ratio is of
the medians. In a dry run the demo's trainers stand in for torch.
"""

from __future__ import annotations

import statistics
from typing import Any

from bench.gpu.part import Bench, main, say
from tandem.demo.scenario import Scenario
from tandem.demo.stats import rate_per_s

ROUNDS = 3
SECONDS = 12.0
DRY_SECONDS = 2.0
# role -> lowest managed/bare throughput that is accepted
LIMITS = {"vision": 0.97, "language": 0.97, "vision-graph": 0.99}


def measure(bench: Bench) -> dict[str, Any]:
    """One ratio a role."""
    roles = [r for r in LIMITS if not (bench.dry and r.endswith("-graph"))]
    figures: dict[str, Any] = {}
    for role in roles:
        rates: dict[bool, list[float]] = {False: [], True: []}
        for number in range(ROUNDS):
            for managed in (False, True):
                rates[managed].append(_rate(bench, role, managed=managed, number=number))
        bare, managed_rate = (statistics.median(rates[m]) for m in (False, True))
        ratio = round(managed_rate / bare, 4)
        figures[role] = {
            "bare_per_s": round(bare, 3),
            "managed_per_s": round(managed_rate, 3),
            "ratio": ratio,
            "limit": LIMITS[role],
            "ok": ratio >= LIMITS[role],
        }
        say(f"{role}: {ratio} of bare")
    good = all(f["ok"] for f in figures.values())
    return {"mode": bench.place.mode, **figures, "ok": good or bench.dry}


def _rate(bench: Bench, role: str, *, managed: bool, number: int) -> float:
    seconds = DRY_SECONDS if bench.dry else SECONDS
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
