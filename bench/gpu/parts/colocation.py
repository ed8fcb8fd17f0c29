"""Part `colocation`: an inference server and two trainers, alone and with several ways of sharing.

Compares Tandem with the ways that people use today: nothing at all, stream priorities, and MPS with
client priorities. Tandem runs with time slices and under MPS; its daemon tells which it was.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bench.gpu.harness.mps import PRIORITY, mps, without_mps
from bench.gpu.harness.part import SERVER_LOAD, Bench, main, progress, say
from bench.gpu.harness.questions import FAILURES
from tandem import Client
from tandem.demo.measure import Outcome, latencies_ms, service_ms
from tandem.demo.place import Place
from tandem.demo.report import Results, build_report, format_table
from tandem.demo.scenario import Program, Scenario
from tandem.demo.settings import ROLES, TRAINERS
from tandem.demo.stats import percentile
from tandem.errors import TandemError

SECONDS, LEAST_SECONDS = 12.0, 6.0  # of each run; less than SECONDS if not all would fit in time
RUNS, START_S = 10, 9.0
ASK_S = 2.0
LEAST_SPREAD = 20  # requests
PROBE_GAP_NS = 50_000_000
STREAM_PRIORITIES = {"server": -1}  # a lower number goes first; the others have 0
CLIENT_PRIORITIES = dict.fromkeys(TRAINERS, 1)  # below normal


@dataclass(frozen=True, kw_only=True)
class Arm:
    """A way of sharing. Under MPS it needs a control daemon, which may be unavailable."""

    managed: bool = False
    under_mps: bool = False
    stream_priorities: bool = False
    client_priorities: bool = False


ARMS = {
    "unmanaged": Arm(),
    "priorities": Arm(stream_priorities=True),
    "tandem": Arm(managed=True),
    "mps": Arm(under_mps=True),
    "mps_priorities": Arm(under_mps=True, client_priorities=True),
    "tandem_mps": Arm(under_mps=True, managed=True),
}


def measure(bench: Bench) -> dict[str, Any]:
    """Make the demo's report with a scenario for each arm; on a GPU, of torch programs."""
    sliced = without_mps(bench)
    request_ns = _request_ns(sliced)
    runs = _Runs(sliced, gap_ns=int(request_ns / SERVER_LOAD))
    alone = {role: runs.alone(role) for role in ("server", *TRAINERS)}
    shared: dict[str, Outcome] = {}
    failed: dict[str, str] = {}
    figures: dict[str, Any] = {}

    def take(name: str, place: Place | None, why_not: str = "") -> None:
        nonlocal figures
        try:
            if place is None:
                failed[name] = why_not
            else:
                shared[name] = runs.shared(name, ARMS[name], place)
        except FAILURES as failure:
            failed[name] = str(failure) or type(failure).__name__
        if name in failed:
            say(f"{name}: {failed[name]}")
        results = Results(place=sliced.place, alone=alone, shared=shared, request_ns=request_ns)
        figures = _figures(results, failed)
        bench.save(figures)

    under_mps = [name for name, arm in ARMS.items() if arm.under_mps]
    for name in [name for name in ARMS if name not in under_mps]:
        take(name, sliced.place)
    with mps(bench) as (place, why_not):
        for name in under_mps:
            take(name, place, why_not)
    print(format_table(figures))
    return figures


def _figures(results: Results, failed: Mapping[str, str]) -> dict[str, Any]:
    """The figures; not ok if a result is wrong or an arm without MPS failed."""
    modes = {name: outcome.mode for name, outcome in results.shared.items()}
    needed = all(ARMS[name].under_mps for name in failed)
    return {
        **build_report(results),
        "modes": modes,
        "server_spread": {
            name: spread(latencies_ms(server))
            for name, outcome in results.shared.items()
            if (server := outcome.worker("server")) is not None
        },
        "failed_arms": dict(failed),
        "ok": results.all_correct and needed,
    }


def spread(latencies: Sequence[float]) -> dict[str, Any]:
    """How reliable the p99 of one run is: its p95, and the p99 of each half, in ms."""
    if len(latencies) < LEAST_SPREAD:
        return {}
    half = len(latencies) // 2
    halves = (latencies[:half], latencies[half:])
    return {
        "p95_ms": round(percentile(latencies, 95), 3),
        "p99_of_halves_ms": [round(percentile(part, 99), 3) for part in halves],
    }


class _Runs:
    """Runs of the programs together, each in a folder of its own."""

    def __init__(self, bench: Bench, *, gap_ns: int) -> None:
        self._bench = bench
        self._gap_ns = gap_ns
        fits_s = progress.limit_s / RUNS - START_S
        self._seconds = bench.seconds(max(LEAST_SECONDS, min(SECONDS, fits_s)))

    def alone(self, role: str) -> Outcome:
        return self._run("alone", [role], Arm(), self._bench.place)

    def shared(self, name: str, arm: Arm, place: Place) -> Outcome:
        return self._run(name, ROLES, arm, place)

    def _run(self, name: str, roles: Sequence[str], arm: Arm, place: Place) -> Outcome:
        say(f"{name}: {', '.join(roles)}")
        program = self._bench.program(
            seconds=self._seconds,
            gap_ns=self._gap_ns,
            priorities=STREAM_PRIORITIES if arm.stream_priorities else None,
        )
        if arm.client_priorities:
            program = with_variables(
                program, {role: {PRIORITY: str(p)} for role, p in CLIENT_PRIORITIES.items()}
            )
        with Scenario(
            name=name,
            place=place,
            program=program,
            roles=roles,
            seconds=self._seconds,
            folder=self._bench.folder / "-".join([name, *roles]),
            managed=arm.managed,
        ) as scenario:
            scenario.start()
            mode = _observed_mode(scenario) if arm.managed else place.mode
            return replace(scenario.finish(), mode=mode)


def _observed_mode(scenario: Scenario) -> str:
    """The mode in which the daemon found these jobs, whatever mode was intended."""
    try:
        with Client(directory=str(scenario.runtime_dir)) as client:
            return client.explain(scenario.roles[0], deadline_s=ASK_S).mode
    except TandemError as failure:
        return f"the daemon did not say: {failure}"


def with_variables(program: Program, variables: Mapping[str, Mapping[str, str]]) -> Program:
    """The program with environment variables that differ by role."""

    def command(role: str) -> list[str]:
        settings = [f"{name}={value}" for name, value in variables.get(role, {}).items()]
        return ["env", *settings, *program(role)] if settings else list(program(role))

    return command


def _request_ns(bench: Bench) -> int:
    """The time of a request on the idle device: the median of a short run alone."""
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
