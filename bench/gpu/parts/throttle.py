"""Part `throttle`: a trainer that matters and one that may have what it leaves, under MPS.

MPS by itself lets both run as they like. Under the policy `priority` the batch trainer has the
gaps of the normal one; under `throttle` as much beside it as loses it little. Rates are those of
the second half of a run, when the part of the time that `throttle` gives has settled.
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

SECONDS = 16.0
NORMAL, BATCH = TRAINERS
# Of the policy of the daemon; None: without one.
ARMS: dict[str, str | None] = {"mps": None, "priority": "priority", "throttle": "throttle"}


def measure(bench: Bench) -> dict[str, Any]:
    """What each keeps of its rate alone; not ok where a result is wrong or nothing came of it."""
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
    """Of each trainer's rate alone, 0 where it has none."""
    return {
        worker.role: round(_late_rate(worker) / alone[worker.role], 4) if alone[worker.role] else 0
        for worker in outcome.workers
    }


def _late_rate(worker: WorkerReport) -> float:
    """Iterations a second from the one that is under way at half of its time to the last one."""
    ends_ns = [item["end_ns"] for item in worker.items]
    late = [end_ns for end_ns in ends_ns if end_ns >= ends_ns[-1] / 2] if ends_ns else []
    span_ns = late[-1] - late[0] if late else 0
    return round((len(late) - 1) / span_ns * 1e9, 4) if span_ns else 0.0


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
