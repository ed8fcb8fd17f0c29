"""The demo's report: one JSON object, and a table for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tandem.demo.measure import (
    Alone,
    Outcome,
    busy_ratio,
    idle_share,
    server_figures,
    trainer_figures,
)
from tandem.demo.place import Place
from tandem.demo.settings import TRAINERS
from tandem.demo.stats import ratio

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Results:
    """All results of a run of the demo."""

    place: Place
    alone: Mapping[str, Outcome]  # by role
    shared: Mapping[str, Outcome]  # all programs together: "unmanaged", "tandem", and others
    request_ns: int
    notes: Sequence[str] = ()

    @property
    def all_correct(self) -> bool:
        """Whether all checksums of all runs were right."""
        return all(w.all_correct for o in self.outcomes for w in o.workers)

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """The outcomes of all runs, in order."""
        return (*self.alone.values(), *self.shared.values())


def build_report(results: Results) -> Json:
    """The object that `tandem demo --json` prints."""
    reference = _reference(results)
    merged = Outcome(
        name="alone",
        window_ns=results.alone["server"].window_ns,
        workers=tuple(w for o in results.alone.values() for w in o.workers),
        spans=(),
    )
    alone = _scenario(merged, busy=busy_ratio(results.alone["server"], reference))
    shared = {
        name: _scenario(o, busy=busy_ratio(o, reference)) for name, o in results.shared.items()
    }
    place = results.place
    return {
        "device": {
            "name": place.name,
            "kind": place.kind,
            "mode": place.mode,
            "clock": place.clock,
        },
        "scenarios": {"alone": alone, **shared},
        "ratios": {
            "server_p99_vs_alone": {n: _p99_ratio(one, alone) for n, one in shared.items()},
            "trainers_vs_alone": {n: _rate_ratio(one, alone) for n, one in shared.items()},
            "trainers_share_of_idle": {
                name: round(idle_share(o, reference), 4) for name, o in results.shared.items()
            },
        },
    }


def format_table(report: Json, *, notes: Sequence[str] = ()) -> str:
    """The report as a table: one column per scenario, figures with their ratios to alone."""
    scenarios, ratios = report["scenarios"], report["ratios"]
    device = report["device"]
    names = tuple(scenarios)
    rows = [
        ("", *names),
        ("server p50", *(f"{scenarios[n]['server']['p50_ms']:.1f} ms" for n in names)),
        ("server p99", *(_p99_cell(report, n) for n in names)),
        ("requests", *(str(scenarios[n]["server"]["requests"]) for n in names)),
        ("errors", *(str(scenarios[n]["server"]["errors"]) for n in names)),
    ]
    for index, name in enumerate(TRAINERS):
        rows.append((f"{name} trainer", *(_rate_cell(report, n, index) for n in names)))
    rows += [
        ("gpu busy", *(f"{scenarios[n]['gpu_busy_ratio']:.0%}" for n in names)),
        (
            "trainers' share of idle",
            "",
            *(f"{ratios['trainers_share_of_idle'][n]:.0%}" for n in names[1:]),
        ),
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(len(names) + 1)]
    head = f"{device['name']} ({device['kind']}), mode {device['mode']}, {device['clock']} clock"
    lines = [head, ""]
    lines += [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return "\n".join([*lines, *(["", *notes] if notes else [])])


def _reference(results: Results) -> Alone:
    iteration_ns = {}
    for role in TRAINERS:
        report = results.alone[role].worker(role)
        spans = report.intervals if report is not None else []
        length_ns = spans[-1][1] - spans[0][0] if spans else 0
        iteration_ns[role] = length_ns / max(len(spans), 1)
    return Alone(request_ns=results.request_ns, iteration_ns=iteration_ns)


def _scenario(outcome: Outcome, *, busy: float) -> Json:
    server = outcome.worker("server")
    trainers = [outcome.worker(role) for role in TRAINERS]
    return {
        "server": server_figures(server) if server is not None else {},
        "trainers": [trainer_figures(t) for t in trainers if t is not None],
        "gpu_busy_ratio": round(busy, 4),
    }


def _p99_ratio(scenario: Json, alone: Json) -> float:
    return round(ratio(scenario["server"]["p99_ms"], alone["server"]["p99_ms"]), 3)


def _rate_ratio(scenario: Json, alone: Json) -> float:
    """The mean over the trainers of their rate relative to their rate alone."""
    pairs = zip(scenario["trainers"], alone["trainers"], strict=True)
    each = [ratio(now["iterations_per_s"], then["iterations_per_s"]) for now, then in pairs]
    return round(sum(each) / len(each), 4) if each else 0.0


def _p99_cell(report: Json, name: str) -> str:
    p99 = f"{report['scenarios'][name]['server']['p99_ms']:.1f} ms"
    if name == "alone":
        return p99
    return f"{p99} ({report['ratios']['server_p99_vs_alone'][name]:.2f}x)"


def _rate_cell(report: Json, name: str, index: int) -> str:
    rates = [report["scenarios"][n]["trainers"][index] for n in ("alone", name)]
    base, now = (r["iterations_per_s"] for r in rates)
    mark = "" if rates[1]["checksum_ok"] else " WRONG"
    if name == "alone":
        return f"{now:.2f} it/s{mark}"
    return f"{now:.2f} it/s ({ratio(now, base):.2f}x){mark}"
