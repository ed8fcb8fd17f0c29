"""Reports results: each job beside the same job alone on the same machine, and all together.

ANTT, the mean of the slowdowns, and STP, the sum of their inverses, are those of PREMA (Choi and
Rhu, HPCA 2020): jobs that do not disturb each other have an ANTT of 1 and an STP equal to their
number. Fairness is Jain's index of the slowdowns: 1 if all are equal, 1/n if one job bears
everything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil

from tandem.units import format_duration
from tandemd.sim.run import JobOutcome, Outcome, simulate
from tandemd.sim.workload import Workload

NOTHING = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """The report of one job. Ratios and shares are 0 or more; None: there is no basis for it."""

    name: str
    problem: str
    iterations: int
    completion_ns: int | None  # from its arrival to its end
    held_ns: int
    slowdown: float | None
    gpu_share: float | None  # of all computation on the GPU while the job was there
    gpu_ns: int
    charged_ns: int
    requests: int
    p50_ns: int | None
    p99_ns: int | None
    within_slo: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The report of one run."""

    policy: str
    makespan_ns: int
    is_stuck: bool
    mean_completion_ns: int | None
    p95_completion_ns: int | None
    antt: float | None
    stp: float | None
    fairness: float | None
    switches: int
    jobs: tuple[JobReport, ...]


def report_of(workload: Workload, *, until_ns: int | None = None) -> Report:
    """Play a workload, and each of its jobs alone, at most up to `until_ns`."""
    outcome = simulate(workload, until_ns=until_ns)
    alone = {
        job.name: simulate(workload.only(job), until_ns=until_ns).jobs[0]
        for job in workload.jobs
        if any(job.name == told.name for told in outcome.jobs)
    }
    return _report(workload.options.policy, outcome, alone)


def _report(policy: str, outcome: Outcome, alone: Mapping[str, JobOutcome]) -> Report:
    jobs = tuple(_of_job(job, alone[job.name]) for job in outcome.jobs)
    completions_ns = [job.completion_ns for job in jobs if job.completion_ns is not None]
    slowdowns = [job.slowdown for job in jobs if job.slowdown is not None]
    return Report(
        policy=policy,
        makespan_ns=outcome.ended_ns,
        is_stuck=outcome.is_stuck,
        mean_completion_ns=sum(completions_ns) // len(completions_ns) if completions_ns else None,
        p95_completion_ns=percentile(completions_ns, 0.95),
        antt=sum(slowdowns) / len(slowdowns) if slowdowns else None,
        stp=sum(1 / slowdown for slowdown in slowdowns) if slowdowns else None,
        fairness=jain(slowdowns),
        switches=outcome.switches,
        jobs=jobs,
    )


def _of_job(job: JobOutcome, alone: JobOutcome) -> JobReport:
    requests_ns = job.requests_ns
    within = [took_ns <= job.slo_ns for took_ns in requests_ns] if job.slo_ns else []
    return JobReport(
        name=job.name,
        problem=job.problem,
        iterations=job.steps,
        completion_ns=_completion_ns(job),
        held_ns=job.held_ns,
        slowdown=slowdown_of(job, alone),
        gpu_share=job.gpu_ns / job.of_all_ns if job.of_all_ns else None,
        gpu_ns=job.gpu_ns,
        charged_ns=job.charged_ns,
        requests=len(requests_ns),
        p50_ns=percentile(requests_ns, 0.5),
        p99_ns=percentile(requests_ns, 0.99),
        within_slo=sum(within) / len(within) if within else None,
    )


def slowdown_of(job: JobOutcome, alone: JobOutcome) -> float | None:
    """Return by what factor the job took longer than alone: to its end, or per request on average.

    A server's end depends on when its last request comes, and hardly on anything else.
    """
    if job.problem or alone.problem:
        return None
    if job.requests_ns and alone.requests_ns:
        mean_ns, alone_ns = _mean(job.requests_ns), _mean(alone.requests_ns)
        return mean_ns / alone_ns if alone_ns else None
    took_ns, alone_took_ns = _completion_ns(job), _completion_ns(alone)
    return took_ns / alone_took_ns if took_ns is not None and alone_took_ns else None


def percentile(values: Sequence[int], part: float) -> int | None:
    """Return the least value that this part of the values does not exceed; None without any."""
    if not values:
        return None
    return sorted(values)[max(0, ceil(part * len(values)) - 1)]


def jain(values: Sequence[float]) -> float | None:
    """Return Jain's index, (sum x)^2 / (n sum x^2); None if there are no values."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else None


def text_of(reports: Sequence[Report]) -> str:
    """Render tables for people: one of all policies, and one of the jobs under each."""
    parts = [_table([_OVERALL, *map(_overall_row, reports)])]
    parts += [f"{one.policy}:\n" + _table([_JOB, *map(_job_row, one.jobs)]) for one in reports]
    told = [(one.policy, job) for one in reports for job in one.jobs if ":" in job.problem]
    parts += [f"{job.name} under {policy}: {job.problem}" for policy, job in told]
    stuck = [report.policy for report in reports if report.is_stuck]
    parts += [f"under {name} no job could go on: some wait forever" for name in stuck]
    return "\n\n".join(parts) + "\n"


def json_of(reports: Sequence[Report]) -> str:
    """Render all figures; keys name nanoseconds, and shares are of 1."""
    return json.dumps([asdict(_rounded(report)) for report in reports], indent=2) + "\n"


def _rounded(report: Report) -> Report:
    """Round to meaningful digits; the last ones of a division are noise when files are compared."""
    jobs = tuple(
        replace(
            job,
            slowdown=_round(job.slowdown),
            gpu_share=_round(job.gpu_share),
            within_slo=_round(job.within_slo),
        )
        for job in report.jobs
    )
    return replace(
        report,
        jobs=jobs,
        antt=_round(report.antt),
        stp=_round(report.stp),
        fairness=_round(report.fairness),
    )


_OVERALL = ["POLICY", "MAKESPAN", "MEAN", "P95", "ANTT", "STP", "FAIRNESS", "SWITCHES"]
_JOB = ["JOB", "TOOK", "SLOWDOWN", "HELD", "GPU", "ITERATIONS", "REQUESTS", "P50", "P99", "IN SLO"]


def _overall_row(report: Report) -> list[str]:
    return [
        report.policy,
        _time(report.makespan_ns),
        _time(report.mean_completion_ns),
        _time(report.p95_completion_ns),
        _ratio(report.antt),
        _ratio(report.stp),
        _ratio(report.fairness),
        str(report.switches),
    ]


def _job_row(job: JobReport) -> list[str]:
    return [
        job.name,
        job.problem.partition(":")[0] or _time(job.completion_ns),
        _ratio(job.slowdown),
        _time(job.held_ns),
        _share(job.gpu_share),
        str(job.iterations) if job.iterations else NOTHING,
        str(job.requests) if job.requests else NOTHING,
        _time(job.p50_ns),
        _time(job.p99_ns),
        _share(job.within_slo),
    ]


def _table(rows: Sequence[Sequence[str]]) -> str:
    """Align names to the left, figures to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


def _completion_ns(job: JobOutcome) -> int | None:
    return None if job.ended_ns is None or job.problem else job.ended_ns - job.arrival_ns


def _mean(values: Sequence[int]) -> float:
    return sum(values) / len(values)


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def _time(time_ns: int | None) -> str:
    return NOTHING if time_ns is None else format_duration(time_ns)


def _ratio(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2f}"


def _share(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.1%}"
