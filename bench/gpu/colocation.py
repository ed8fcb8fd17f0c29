"""Part `colocation`: an inference server and two trainers, alone, unmanaged and under Tandem."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from bench.gpu.part import SERVER_LOAD, Bench, main, say
from tandem.demo.measure import Outcome, service_ms
from tandem.demo.report import Results, build_report, format_table
from tandem.demo.scenario import Scenario
from tandem.demo.settings import ROLES, TRAINERS

SECONDS = 30.0
PROBE_GAP_NS = 50_000_000


def measure(bench: Bench) -> dict[str, Any]:
    """The demo's report, of torch programs."""
    seconds = bench.seconds(SECONDS)
    request_ns = _request_ns(bench)
    gap_ns = int(request_ns / SERVER_LOAD)

    def run(name: str, roles: Sequence[str], *, managed: bool = False) -> Outcome:
        say(f"{name}: {', '.join(roles)}")
        with Scenario(
            name=name,
            place=bench.place,
            program=bench.program(seconds=seconds, gap_ns=gap_ns),
            roles=roles,
            seconds=seconds,
            folder=bench.folder / "-".join([name, *roles]),
            managed=managed,
        ) as scenario:
            return scenario.run()

    results = Results(
        place=bench.place,
        alone={role: run("alone", [role]) for role in ("server", *TRAINERS)},
        unmanaged=run("unmanaged", ROLES),
        tandem=run("tandem", ROLES, managed=True),
        request_ns=request_ns,
    )
    report = build_report(results)
    print(format_table(report))
    return {**report, "ok": results.all_correct}


def _request_ns(bench: Bench) -> int:
    """Time of one request on the idle device: the median of a short run alone."""
    if bench.work is not None:
        return bench.work.request_ns
    with Scenario(
        name="probe",
        place=bench.place,
        program=bench.program(seconds=3.0, gap_ns=PROBE_GAP_NS),
        roles=["server"],
        seconds=3.0,
        folder=bench.folder / "probe",
    ) as scenario:
        return int(statistics.median(service_ms(scenario.run().workers[0])) * 1e6)


if __name__ == "__main__":
    main(measure)
