"""Explains a job's place in the plan, the reasons, and results against predictions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite

from tandemd.core.model import Job
from tandemd.core.planner.divisions import Division
from tandemd.core.planner.kept_plans import Measured
from tandemd.core.planner.plans import Forecast, Scene, Valued, objectives
from tandemd.core.scheduler import Scheduler
from tandemd.core.words import span_of


def plan_lines(scheduler: Scheduler, job: Job, now_ns: int) -> list[str]:
    """Describe the job's plan; nothing if nothing is planned for it."""
    division = scheduler.divisions.of(job)
    if division is None:
        return []
    if division.why_not:
        why_not = f"plan: time, all take turns: {division.why_not}"
        return [why_not, *_came(division, job, now_ns)]
    if division.valued is None:
        return [f"plan: none yet: {_why_none(division)}"]
    return [
        f"plan: {division.valued.kind}: {_where(division, job)}, because {division.why}",
        *_came(division, job, now_ns),
        *_not_taken(division),
        *([f"plan: no other is looked for: {_why_none(division)}"] if division.failure else []),
        *_before(division, job),
    ]


def _why_none(division: Division) -> str:
    return f"none was found ({division.failure})" if division.failure else "one is being made"


def _where(division: Division, job: Job) -> str:
    part = division.part_of(job.display_name)
    if part is None or division.seen is None:
        undivided = division.seen.undivided if division.seen else ""
        return f"all take turns on all SMs{undivided and f', because {undivided}'}"
    others = [name for name in part.members if name != job.display_name]
    what = f"{part.groups * division.seen.scene.gpu.sms_of_group} SMs"
    return f"{what}, in turns with {', '.join(others)}" if others else f"{what} of its own"


def _came(division: Division, job: Job, now_ns: int) -> Iterator[str]:
    """Yield what the plan in force has achieved for the job."""
    name, seen = job.display_name, division.seen
    if division.valued is None or seen is None or name not in division.valued.forecasts:
        return
    measured = division.measured([job], now_ns)
    yield f"plan: {_compared(division.valued.forecasts[name], measured, name, seen.scene)}"
    yield from _slowdown(division, name, measured.get(name))


def _slowdown(division: Division, name: str, measured: Measured | None) -> Iterator[str]:
    """Yield the slowdown by jobs on other SMs; also as measured, for a busy job on its own SMs."""
    assert division.valued is not None
    assert division.seen is not None
    foretold, part = division.valued.forecasts[name], division.part_of(name)
    if part is None:
        return
    told = (
        f"plan: beside the jobs on other SMs, iterations should take {foretold.slowdown:.2f} times"
    )
    is_alone = part.members == (name,) and not division.seen.scene.workers[name].rate
    if measured and is_alone:
        # The predicted progress includes this slowdown; a larger real one lowers it in proportion.
        found = foretold.slowdown * foretold.progress / measured.progress
        yield f"{told} as long, and they take {found:.2f} times"
    elif foretold.slowdown > 1:
        yield f"{told} as long"


def _compared(foretold: Forecast, measured: Mapping[str, Measured], name: str, scene: Scene) -> str:
    found = measured.get(name)
    figures = [f"progress {foretold.progress:.2f} is predicted"]
    figures[0] += f" and {found.progress:.2f} measured" if found else ""
    if scene.workers[name].rate:
        doubt = scene.workers[name].sizes.doubt
        within = f" (within {doubt:.0%})" if doubt and isfinite(foretold.p99_ns) else ""
        figures.append(f"p99 {span_of(foretold.p99_ns)}{within} is predicted")
        figures[1] += f" and {span_of(found.p99_ns)} measured" if found and found.p99_ns else ""
    over = f", over {span_of(found.over_ns)}" if found else "; nothing has been measured yet"
    return ", ".join(figures) + over


def _not_taken(division: Division) -> Iterator[str]:
    """Yield the best plan of each other kind, and its disadvantage."""
    now = division.valued
    assert now is not None
    for other in division.others:
        if other.kind != now.kind:
            yield f"plan: not {other.kind}: {_against(other, now)}"


def _against(other: Valued, now: Valued) -> str:
    if other.missed != now.missed:
        return f"it would miss {objectives(other.missed)}, and this one {now.missed or 'none'}"
    if other.slighted != now.slighted:
        few = f"{other.slighted} of the jobs whose scaling is unknown"
        return f"it gives {few} less than their share, and this one {now.slighted or 'none'}"
    why = f"it promises {other.progress:.2f} of progress by weight, and this one {now.progress:.2f}"
    pairs = zip(other.shares, now.shares, strict=False)  # jobs may have left since
    told = ((f"{its:.2f}", f"{here:.2f}") for its, here in pairs)
    less, more = next((pair for pair in told if pair[0] != pair[1]), ("", ""))
    if other.progress > now.progress and less < more:
        why += f"; but the job that gets least for its weight would get {less}, and here {more}"
    return why


def _before(division: Division, job: Job) -> Iterator[str]:
    """Yield what earlier plans achieved for the job."""
    name = job.display_name
    for kept in reversed(division.kept):
        found, foretold = kept.measured.get(name), kept.valued.forecasts.get(name)
        if found is None or foretold is None:
            continue
        p99 = (
            f", p99 {span_of(foretold.p99_ns)} and {span_of(found.p99_ns)}" if found.p99_ns else ""
        )
        yield (
            f"plan before: {kept.valued.kind}: progress {foretold.progress:.2f} was predicted and "
            f"{found.progress:.2f} measured{p99}, over {span_of(found.over_ns)}"
        )
