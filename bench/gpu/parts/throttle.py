"""Part `throttle`: an important trainer, and one that may use what it leaves, under MPS.

MPS alone lets both run freely. Under the policy `priority`, the batch trainer gets the gaps of the
normal one; under `throttle`, it runs beside it for as much of the time as costs the normal one
little. Rates are from the second half of a run, when the share of time that `throttle` gives has
settled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.gpu.harness.mps import mps
from bench.gpu.harness.part import Bench, main, say
from bench.gpu.harness.questions import FAILURES
from tandem.demo.measure import Outcome, WorkerReport
from tandem.demo.place import Place
from tandem.demo.scenario import Scenario
from tandem.demo.settings import TRAINERS
from tandem.demo.stats import rate_per_s, ratio

SECONDS = 16.0
NORMAL, BATCH = TRAINERS
# The daemon's policy; None: no daemon.
ARMS: dict[str, str | None] = {"mps": None, "priority": "priority", "throttle": "throttle"}


def measure(bench: Bench) -> dict[str, Any]:
    """Measure what each keeps of its rate alone; not ok if a result is wrong or an arm failed."""
    with mps(bench) as (place, why_not):
        if place is None:
            say(why_not)
            return {"why_not": why_not, "ok": False}
        alone = {role: _run(bench, place, f"alone-{role}", [role], None) for role in TRAINERS}
        rates = {role: _late_rate(outcome.workers[0]) for role, outcome in alone.items()}
        figures: dict[str, Any] = {"alone_iterations_per_s": rates, "kept": {}, "ok": True}
        for name, policy in ARMS.items():
            try:
                outcome = _run(bench, place, name, TRAINERS, policy)
            except FAILURES as failure:
                say(f"{name}: {failure}")
                figures |= {f"{name}_failed": str(failure), "ok": False}
                continue
            figures["kept"][name] = kept(outcome, rates)
            figures["ok"] &= all(worker.all_correct for worker in outcome.workers)
            bench.save(figures)
    print(figures["kept"])
    return figures


def kept(outcome: Outcome, alone: dict[str, float]) -> dict[str, float]:
    """What each trainer keeps of its rate alone; 0 if it has none."""
    return {
        worker.role: round(ratio(_late_rate(worker), alone[worker.role]), 4)
        for worker in outcome.workers
    }


def _late_rate(worker: WorkerReport) -> float:
    """Iterations per second, of those that began in the second half of the run."""
    spans = worker.intervals
    half_ns = (worker.start_ns + spans[-1][1]) / 2 if spans else 0
    return round(rate_per_s([span for span in spans if span[0] >= half_ns]), 4)


def _run(
    bench: Bench, place: Place, name: str, roles: Sequence[str], policy: str | None
) -> Outcome:
    say(f"{name}: {', '.join(roles)}")
    seconds = bench.seconds(SECONDS)
    with Scenario(
        name=name,
        place=place,
        program=bench.program(seconds=seconds),
        roles=roles,
        seconds=seconds,
        folder=bench.folder / name,
        managed=policy is not None,
        config=f'version = 1\n[scheduler]\npolicy = "{policy}"\nmin_share = 0\n',
        classes={NORMAL: "normal"},
    ) as scenario:
        return scenario.run()


if __name__ == "__main__":
    main(measure)
