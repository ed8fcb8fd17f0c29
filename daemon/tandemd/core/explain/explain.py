"""Explains why a job runs or waits, in words and figures. Only reads the scheduler."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter

from tandemd.core.cancels import explain_cancel
from tandemd.core.explain.curves import curve_lines, explain_kept
from tandemd.core.explain.demands import split_lines
from tandemd.core.explain.lanes import explain_lane, lane_lines
from tandemd.core.explain.memory import (
    explain_away,
    explain_wait,
    first_in_line,
    memory_facts,
    paused_memory,
)
from tandemd.core.explain.pairs import pair_lines, partners_of
from tandemd.core.explain.phases import explain_standing, phase_lines
from tandemd.core.explain.plan import plan_lines
from tandemd.core.explain.requests import request_lines
from tandemd.core.explain.tuner import tuner_lines
from tandemd.core.explain.turns import explain_held, piece_lines, turn_lines, waits_for_turn
from tandemd.core.memory.audit import describe, describe_overclaim, is_overclaimed, is_unaccounted
from tandemd.core.memory.refusals import refusals
from tandemd.core.model import Group, Job, JobClass, JobState, Options, Phases, WaitReason
from tandemd.core.notices import explain_notice, listening_lines
from tandemd.core.scheduler import Scheduler
from tandemd.core.substrate import SUBSTRATES
from tandemd.core.turns.forecast import NARROW, narrowed_by
from tandemd.core.turns.turns import Turns
from tandemd.core.words import counted, span_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """A summary sentence, then facts, one per line."""

    summary: str
    lines: tuple[str, ...]


def explain(scheduler: Scheduler, job: Job, now_ns: int) -> Explained:
    """Say what the job does now, who has the GPU, and until when at most."""
    group = scheduler.group_of(job)
    if job.state is JobState.EXITED or group is None:
        return Explained(summary=_ended(job), lines=())
    found = scheduler.island_of(group)
    summary = _now(scheduler, job, group, now_ns)
    steered = _steered(job, group, now_ns)
    lines = [
        *([summary] if steered else []),
        *_facts(scheduler, job, group, found, now_ns),
        *memory_facts(scheduler, job),
    ]
    lines += request_lines(job, now_ns)
    lines += listening_lines(job)
    lines += plan_lines(scheduler, job, now_ns)
    lines += tuner_lines(scheduler, job, group)
    lines += piece_lines(scheduler, group)
    lines += turn_lines(scheduler, group)
    lines += curve_lines(group, scheduler, now_ns)
    lines += phase_lines(group, scheduler)
    if standing := scheduler.lanes.of(group):
        lines += lane_lines(standing)
    return Explained(summary=steered or summary, lines=tuple(lines))


def summarise(scheduler: Scheduler, job: Job, now_ns: int) -> str:
    """Return only the sentence of `explain`, for lists of many jobs."""
    group = scheduler.group_of(job)
    if job.state is JobState.EXITED or group is None:
        return _ended(job)
    return _steered(job, group, now_ns) or _now(scheduler, job, group, now_ns)


def _steered(job: Job, group: Group, now_ns: int) -> str | None:
    return explain_cancel(job, now_ns) or explain_notice(job, group, now_ns)


def _ended(job: Job) -> str:
    ended = "ended: it was cancelled" if job.cancel else "ended"
    return "; ".join((ended, *refusals(job)))


def _now(scheduler: Scheduler, job: Job, group: Group, now_ns: int) -> str:
    """What the job does now, in one sentence."""
    found = scheduler.island_of(group)
    if job.paused or group.paused:
        return _paused(scheduler, job, group)
    if not job.processes or found is None:
        if job.turned_away:
            return job.turned_away
        return "has left the gpu" if job.left_ns else "has not used the gpu yet"
    if waiting := _waits_for_memory(scheduler, job, group, now_ns):
        return waiting
    if not group.open and group.wants:
        return explain_held(scheduler, job, group, *found, now_ns=now_ns)
    return _open(scheduler, job, group, *found)


def _waits_for_memory(scheduler: Scheduler, job: Job, group: Group, now_ns: int) -> str | None:
    standing = scheduler.lanes.of(group)
    if standing and group.barred:
        return explain_lane(standing, scheduler)
    waiter, found = first_in_line(scheduler, job), scheduler.island_of(group)
    of_its_own = waiter is not None and waiter.is_quota
    if found and not of_its_own and waits_for_turn(scheduler, job, group):
        return explain_held(scheduler, job, group, *found, now_ns=now_ns)
    if waiter is not None:
        return explain_wait(waiter, scheduler, now_ns)
    if away := explain_away(scheduler, job, group, now_ns):
        return away
    return _kept(scheduler, group, now_ns) if group.is_kept and not group.busy else None


def _kept(scheduler: Scheduler, group: Group, now_ns: int) -> str:
    passers = (scheduler.phases.passer(process_id) for process_id in group.processes)
    standing = next((passer for passer in passers if passer and passer.stands), None)
    if standing:
        return explain_standing(standing, scheduler, now_ns)
    return explain_kept(group, scheduler, now_ns)


def _paused(scheduler: Scheduler, job: Job, group: Group) -> str:
    if job.paused:
        where = paused_memory(scheduler, job)
        late = f"; {counted(job.unready, 'program')} did not get ready first" if job.unready else ""
        return f"paused by a person{where}{late}; `tandem resume {job.display_name}` lets it go on"
    others = ", ".join(j.display_name for j in group.jobs.values() if j.paused)
    name = f" '{job.spec.group}'" if job.spec.group else ""
    return f"held with its group{name}, in which {others} is paused"


def _open(scheduler: Scheduler, job: Job, group: Group, island: list[Group], turns: Turns) -> str:
    usages = [p.usage for p in job.processes.values()]
    if usages and all(u.ungated for u in usages):
        return "runs ungated: its shim no longer hears from the daemon, or was told to only observe"
    waits = {u.wait_reason for u in usages if u.waiting_threads}
    yields_to, overlap = scheduler.policy.yields_to, scheduler.options.overlaps(group.gpus)
    busy = [one for one in island if one.wants and yields_to(group, one, overlap=overlap)]
    ahead = ", ".join(one.title for one in busy)
    if WaitReason.PRESENCE in waits:
        period_ns, share = scheduler.options.share_period_ns, scheduler.options.min_share
        owed = f"after {_ms(period_ns)} of waiting it is owed {share:.0%} of the time"
        return f"yields to {ahead or 'a higher class'}, which is busy; {owed}"
    if WaitReason.WINDOW in waits:
        narrow = narrowed_by(group, island, policy=scheduler.policy, options=scheduler.options)
        return f"its window of {_segments(scheduler.options, narrow)} is full"
    if job.state is JobState.RUNNING:
        own = " and it is its turn" if turns.holder == group.key and len(island) > 1 else ""
        partners = " and ".join(each.title for each in partners_of(group, island, turns))
        own = f" and it shares its turn with {partners}" if partners else own
        return f"runs: its gate is open{own}"
    return "idle: attached, no work on the gpu; its gate is " + ("open" if group.open else "closed")


def _facts(
    scheduler: Scheduler,
    job: Job,
    group: Group,
    found: tuple[list[Group], Turns] | None,
    now_ns: int,
) -> list[str]:
    options = scheduler.options
    meant = frozenset(gpu for one in group.jobs.values() for gpu in one.meant_gpus)
    substrate = SUBSTRATES[options.mode_of(group.gpus or meant)]
    lines = [
        f"{substrate.description}; policy {options.policy}",
        f"class {group.job_class.name.lower()}",
    ]
    lines += [substrate.warning] if substrate.warning else []
    hindrances = {options.hindrance(gpu, options.mode_of([gpu])) for gpu in group.gpus}
    lines += sorted(hindrances - {""})
    lines += _of_group(group, job)
    lines += _iterations(group)
    if found is None:
        return lines
    island, turns = found
    lines += pair_lines(scheduler, group, island, turns, now_ns)
    lines += split_lines(scheduler, group, island, turns)
    lines += _quantum_lines(scheduler, group, island)
    others = [g for g in island if g is not group]
    if others and not group.preemptible and not scheduler.policy.always_open(group):
        most = span_of(options.nonpreemptible_ns)
        lines.append(
            f"its equals do not cut its iterations (preemptible=no): its turn is extended by up to "
            f"{most} until one ends"
        )
    if others:
        names = ", ".join(f"{g.title} ({g.job_class.name.lower()})" for g in others)
        lines.append(f"shares the gpu with {names}")
        if scheduler.policy.windowed(group) and options.window_segments:
            lines.append(_window(scheduler, group, island))
    if turns.overdue(scheduler.policy.tier(group)):
        lines.append(
            f"its class is owed time: it yields to nobody until it has {options.min_share:.0%}"
        )
    return lines


def _quantum_lines(scheduler: Scheduler, group: Group, island: list[Group]) -> Iterator[str]:
    """When its turns end, if they are quanta and its iterations are known."""
    policy = scheduler.policy
    if policy.by_pieces or policy.always_open(group) or len(island) == 1:
        return
    quantum_ns = policy.quantum_ns(scheduler.options)
    if quantum_ns and group.step_cost_ns:
        turn = _ms(max(quantum_ns, group.turn_ns))
        # Turns are longer where memory is exchanged; only the group's own increase is known.
        least = "" if group.turn_ns else "at least " * any(one.turn_ns for one in island)
        yield (
            f"its turns of {least}{turn} end where an iteration ends, if one does about then; an "
            f"iteration takes {_ms(group.step_cost_ns)} of gpu time"
        )


def _window(scheduler: Scheduler, group: Group, island: list[Group]) -> str:
    options = scheduler.options
    narrow = narrowed_by(group, island, policy=scheduler.policy, options=options)
    line = f"window: {_segments(options, narrow)} of {options.segment_ns // 1000} us"
    if not narrow:
        return line
    briefest = min(narrow, key=attrgetter("gap_p50_ns"))
    return (
        f"{line}, not {options.window_segments}: gaps of {briefest.title} typically end "
        f"{_us(briefest.gap_p50_ns)} after others may start"
    )


def _segments(options: Options, narrow: list[Group]) -> str:
    segments = NARROW if narrow else options.window_segments
    return f"{segments} segment{'' if segments == 1 else 's'}"


def _of_group(group: Group, job: Job) -> list[str]:
    lines = []
    if len(group.jobs) > 1 or len(group.processes) > 1:
        count = f"{len(group.processes)} processes{_why_together(group)}"
        others = [one.title for one in group.jobs.values() if one is not job]
        with_whom = f"together with {', '.join(others)}" if others else "as one"
        lines.append(f"held and released {with_whom}: {count}")
    if waiting := sum(p.usage.waiting_threads for p in group.processes.values()):
        lines.append(f"threads waiting now: {waiting}")
    if group.job_class is JobClass.LATENCY and (lingers := _lingers_ns(group)):
        lines.append(f"counts as busy for {lingers // 1000} us after its last work")
    lines += _gaps(group)
    lines += [describe(p) for p in group.processes.values() if is_unaccounted(p)]
    lines += [describe_overclaim(p) for p in group.processes.values() if is_overclaimed(p)]
    if group.undrainable:
        lines.append("undrainable: its window is limited, but it takes no turns")
    if group.dozing:
        lines.append(
            "takes no turns until it has work on the gpu: so far it only waits at its open gate"
        )
    return lines


def _why_together(group: Group) -> str:
    if group.is_tied:
        return ", which share memory or events of the gpu"
    name = next(iter(group.jobs.values())).spec.group
    return f" of group '{name}'" if name else ""


def _iterations(group: Group) -> list[str]:
    usages = [process.usage for process in group.processes.values()]
    lines = []
    if marked := sum(usage.steps for usage in usages):
        in_all = f" by all {len(usages)} processes" if len(usages) > 1 else ""
        lines.append(f"iterations: {marked} so far{in_all}, marked by the job")
    for process in group.processes.values():
        usage, job = process.usage, group.jobs[process.job_id]
        if usage.iteration_ns:
            whose = "marked iterations" if usage.steps else "iterations found in what it submits"
            whose += f" of {job.title}" if len(group.jobs) > 1 else ""
            each = f"{_ms(usage.iteration_ns)} and {usage.iteration_launches} launches each"
            lines.append(f"{whose}: {each}")
        if usage.phases:
            lines.append(_phases(usage.phases))
    return lines


def _phases(phases: Phases) -> str:
    parts = {"forward": phases.forward, "backward": phases.backward, "update": phases.update}
    told = ", ".join(f"{name} {part:.0%}" for name, part in parts.items())
    return f"phases: {told} of its gpu time ({'marked' if phases.marked else 'found'})"


def _gaps(group: Group) -> list[str]:
    return [
        "gaps in its work: once others may start, half of them end within "
        f"{_us(usage.gap_p50_ns)}, nine in ten within {_us(usage.gap_p90_ns)}"
        for usage in (p.usage for p in group.processes.values())
        if usage.gap_p50_ns
    ]


def _lingers_ns(group: Group) -> int:
    return max((p.usage.linger_ns for p in group.processes.values()), default=0)


def _us(duration_ns: int) -> str:
    return f"{duration_ns // 1000} us" if duration_ns < 10_000_000 else _ms(duration_ns)


def _ms(duration_ns: int) -> str:
    return (
        f"{duration_ns / 1e6:.0f} ms"
        if duration_ns >= 10_000_000
        else f"{duration_ns / 1e6:.1f} ms"
    )
