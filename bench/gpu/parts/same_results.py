"""Part `same_results`: sharing changes no bit of what a program computes.

Each program runs alone and bare, twice, to detect one whose results are not repeatable; then all
run together under Tandem. The digests must agree: a trainer's covers the losses and parameters
after a fixed number of iterations, the server's its answers. On the software GPU, the demo's
programs check themselves against the CPU and have no digest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.gpu.harness.part import CPU, GPU, SOFTWARE, Bench, main, say
from tandem.demo.measure import WorkerReport
from tandem.demo.scenario import Scenario
from tandem.demo.settings import ROLES

SECONDS = 5.0
ITERATIONS = {GPU: 120, CPU: 20, SOFTWARE: 0}
GAP_NS = 30_000_000


def measure(bench: Bench) -> dict[str, Any]:
    """Compare each role's digests over all runs."""
    roles = (*ROLES, "vision-graph") if bench.where == GPU else ROLES
    alone: dict[str, list[WorkerReport]] = {}
    for role in roles:
        say(f"{role}: alone, twice")
        alone[role] = [_reports(bench, [role], number=n)[0] for n in (1, 2)]
        digests = {name: [r.digest[:12] for r in reports] for name, reports in alone.items()}
        bench.save({"mode": bench.place.mode, "alone": digests})
    say("together under Tandem")
    together = _reports(bench, roles, managed=True)
    figures: dict[str, Any] = {"mode": bench.place.mode}
    for report in together:
        first, second = alone[report.role]
        figures[report.role] = compare(first, second, report)
        say(f"{report.role}: {figures[report.role]['verdict']}")
    same = all(f["verdict"] == "same" for f in figures.values() if isinstance(f, dict))
    return {**figures, "ok": same}


def compare(first: WorkerReport, second: WorkerReport, shared: WorkerReport) -> dict[str, str]:
    """Compare two runs alone with one under Tandem."""
    digests = {r.digest for r in (first, second)}
    if not (first.all_correct and second.all_correct):
        verdict = "wrong even alone"
    elif len(digests) > 1:
        verdict = "not repeatable alone"
    elif not shared.all_correct:
        verdict = "wrong under tandem"
    else:
        verdict = "same" if shared.digest in digests else "different under tandem"
    return {"verdict": verdict, "alone": first.digest[:12], "tandem": shared.digest[:12]}


def _reports(
    bench: Bench, roles: Sequence[str], *, managed: bool = False, number: int = 0
) -> Sequence[WorkerReport]:
    seconds = bench.seconds(SECONDS)
    iterations = ITERATIONS[bench.where]
    with Scenario(
        name="together" if managed else "alone",
        place=bench.place,
        program=bench.program(seconds=seconds, gap_ns=GAP_NS, iterations=iterations),
        roles=roles,
        seconds=seconds,
        folder=bench.folder / "-".join(["same", *roles, str(number)]),
        managed=managed,
    ) as scenario:
        return scenario.run().workers


if __name__ == "__main__":
    main(measure)
