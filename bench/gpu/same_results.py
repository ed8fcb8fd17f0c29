"""Part `same_results`: sharing changes no bit of what a program computes.

Each trainer runs a fixed number of iterations alone and bare, then all run together under Tandem;
the digests of their parameters and losses must agree. In a dry run the demo's programs check
themselves against the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.gpu.part import Bench, main, say
from tandem.demo.measure import WorkerReport
from tandem.demo.scenario import Scenario
from tandem.demo.settings import ROLES, TRAINERS

SECONDS = 20.0
DRY_SECONDS = 3.0
ITERATIONS = 60
GAP_NS = 30_000_000


def measure(bench: Bench) -> dict[str, Any]:
    """Whether each role's digest is the same in both runs."""
    alone = {role: _reports(bench, [role], managed=False)[0] for role in TRAINERS}
    together = {w.role: w for w in _reports(bench, ROLES, managed=True)}
    figures: dict[str, Any] = {"server_correct": together["server"].all_correct}
    for role in TRAINERS:
        same = alone[role].digest == together[role].digest
        figures[f"{role}_same"] = same and together[role].all_correct
        say(f"{role}: {'same' if figures[f'{role}_same'] else 'DIFFERENT'}")
    return {**figures, "ok": all(figures.values())}


def _reports(bench: Bench, roles: Sequence[str], *, managed: bool) -> Sequence[WorkerReport]:
    seconds = DRY_SECONDS if bench.dry else SECONDS
    with Scenario(
        name="together" if managed else "alone",
        place=bench.place,
        program=bench.program(seconds=seconds, gap_ns=GAP_NS, iterations=ITERATIONS),
        roles=roles,
        seconds=seconds,
        folder=bench.folder / "-".join(["same", *roles, str(managed)]),
        managed=managed,
    ) as scenario:
        return scenario.run().workers


if __name__ == "__main__":
    main(measure)
