"""The report of the memory demo: one JSON object, and text for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tandem.demo.memory.scenario import JobReport, Outcome
from tandem.demo.place import Place
from tandem.demo.stats import ratio

Json = dict[str, Any]
MIB = 2**20


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The same jobs run in three ways. `serial` has one outcome for each job."""

    unmanaged: Outcome
    serial: Sequence[Outcome]
    ticktock: Outcome

    @property
    def serial_s(self) -> float:
        """The total time of one job after the other."""
        return sum(outcome.seconds for outcome in self.serial)

    @property
    def ticktock_vs_serial(self) -> float:
        """The time under Tandem over that of one job after the other; 0 if there is none."""
        return ratio(self.ticktock.seconds, self.serial_s)

    @property
    def is_right(self) -> bool:
        """Whether all checksums were right, and every job finished alone and under Tandem."""
        expected = [*(o.jobs for o in self.serial), self.ticktock.jobs]
        finished = all(job.is_finished for jobs in expected for job in jobs)
        return finished and not any(
            job.correct is False for jobs in (*expected, self.unmanaged.jobs) for job in jobs
        )


@dataclass(frozen=True, kw_only=True)
class Results:
    """All results of a run."""

    place: Place
    memory_bytes: int
    link_bytes_s: float  # of pinned copies in the slower direction
    trainers: Comparison
    notebooks: Comparison

    @property
    def are_right(self) -> bool:
        """Whether both comparisons are right."""
        return self.trainers.is_right and self.notebooks.is_right


def build_report(results: Results) -> Json:
    """The object that `tandem demo memory --json` prints."""
    place = results.place
    return {
        "device": {
            "name": place.name,
            "kind": place.kind,
            "mode": place.mode,
            "clock": place.clock,
            "memory_bytes": results.memory_bytes,
            "pinned_bytes_per_s": round(results.link_bytes_s),
        },
        "scenarios": _scenarios(results.trainers, results.link_bytes_s),
        "notebooks": _scenarios(results.notebooks, results.link_bytes_s),
        "ratios": {
            "ticktock_vs_serial": round(results.trainers.ticktock_vs_serial, 4),
            "notebooks_vs_serial": round(results.notebooks.ticktock_vs_serial, 4),
        },
    }


def format_text(report: Json) -> str:
    """The report as text for people."""
    device = report["device"]
    lines = [
        f"{device['name']} ({device['kind']}), mode {device['mode']}, {device['clock']} clock, "
        f"{device['memory_bytes'] // MIB} MiB"
    ]
    for what, ratio_name in (("scenarios", "ticktock"), ("notebooks", "notebooks")):
        title = "trainers" if what == "scenarios" else what
        times = report["ratios"][f"{ratio_name}_vs_serial"]
        lines += ["", f"{title}: under Tandem {times:.2f} times one after the other"]
        for name, scenario in report[what].items():
            lines += _text(name, scenario)
    if device["kind"] == "software":
        lines += ["", "A software GPU: this shows who waits for whom and that no byte is lost,"]
        lines += ["not how fast a card would be."]
    return "\n".join(lines)


def _scenarios(found: Comparison, link_bytes_s: float) -> Json:
    serial = Outcome(
        jobs=tuple(job for outcome in found.serial for job in outcome.jobs),
        peak_bytes=max(outcome.peak_bytes for outcome in found.serial),
    )
    return {
        "unmanaged": _scenario(found.unmanaged, link_bytes_s, found.unmanaged.seconds),
        "serial": _scenario(serial, link_bytes_s, found.serial_s),
        "ticktock": _scenario(found.ticktock, link_bytes_s, found.ticktock.seconds),
    }


def _scenario(outcome: Outcome, link_bytes_s: float, seconds: float) -> Json:
    rate = ratio(outcome.swapped_bytes, outcome.swap_s)
    return {
        "jobs": [_job(job) for job in outcome.jobs],
        "finished": sum(job.is_finished for job in outcome.jobs),
        "seconds": round(seconds, 4),
        "peak_bytes": outcome.peak_bytes,
        "swapped_bytes": outcome.swapped_bytes,
        "swap_rate_vs_pinned": round(ratio(rate, link_bytes_s), 4) if outcome.swap_s else None,
    }


def _job(job: JobReport) -> Json:
    return {
        "name": job.name,
        "exit": job.exit_code,
        "checksum_ok": job.correct,
        "seconds": round(job.seconds, 4),
        "error": job.error or None,
    }


def _text(name: str, scenario: Json) -> Iterator[str]:
    moved = scenario["swapped_bytes"]
    rate = scenario["swap_rate_vs_pinned"]
    swapped = f", {moved / MIB:.0f} MiB moved at {rate:.0%} of the pinned rate" if moved else ""
    yield (
        f"  {name:<10} {scenario['finished']} of {len(scenario['jobs'])} finished, "
        f"{scenario['seconds']:.1f} s, peak {scenario['peak_bytes'] / MIB:.0f} MiB{swapped}"
    )
    for job in scenario["jobs"]:
        yield f"    {job['name']:<8} exit {job['exit']}, {_fate(job)}"


def _fate(job: Json) -> str:
    if job["checksum_ok"] is None:
        return f"died with {job['error']}"
    return f"{job['seconds']:.1f} s, checksum {'right' if job['checksum_ok'] else 'WRONG'}"
