"""Turns what is known now of the jobs on a GPU into input for the planner.

What is not known is assumed, and reported: work without a scaling curve counts as if it filled the
GPU, and gets its share of the GPU by weight; work whose bottleneck is unknown counts as if neither
it nor a neighbour slowed the other down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from tandemd.core.model import Group, Job, Options, Process, StayReason
from tandemd.core.planner.planner import alternatives
from tandemd.core.planner.plans import Gpu, Part, Scene, Valued, Worker
from tandemd.core.policy import policy_named
from tandemd.core.space.asked import said_share
from tandemd.core.space.set_places import groups_asked
from tandemd.core.space.sm_counts import given_sms, holds_percentage, why_no_curve
from tandemd.core.substrate import SUBSTRATES, divides_space
from tandemd.core.tuner.pauses import serves_bursts, times_and_pause
from tandemd.core.tuner.sizes import ALIKE, Sizes, sizes_of
from tandemd.core.turns.companions import Pace
from tandemd.core.turns.foresight import features
from tandemd.core.turns.interference import Features, Interference
from tandemd.core.words import span_of

UNSEEN = "jobs of other users are on this gpu, and are not counted here"
MOST_GROUPS = 16  # that a GPU is assumed to divide into, if the driver does not say
_MODES = {"space": "mps", "time and space": "mps+green"}  # least mode for a kind of plan
IN_FORCE = "is how jobs share it"
UNKNOWN_NS = 10_000_000  # assumed for an iteration of a job for which none is known


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """The jobs of an island, ready to be planned for. Holds copies, so any thread may use it.

    It does not know which plan is in force; the division does (divisions.py).
    """

    scene: Scene
    mode: str
    titles: Mapping[str, str]  # people's names for the jobs, by name
    measured_p99_ns: dict[str, int]  # of jobs whose requests are known
    model_count: int  # measurements behind the forecast slowdown by neighbours
    model_error: float | None  # average error of these forecasts
    doubts: tuple[str, ...]
    undivided: str = ""  # why all take turns, whatever is better; empty: no reason
    why_not: Mapping[str, str] = field(default_factory=dict)  # modes that these GPUs cannot be in
    held: Mapping[str, int] = field(default_factory=dict)  # groups, of jobs with an MPS percentage
    overlaps: bool = False  # the policy lets jobs of different parts run at the same time

    def alternatives(self) -> list[Valued]:
        """Return the best plan of each kind, best first; none without jobs. Takes up to 0.1 s."""
        return alternatives(self.scene) if self.scene.workers else []

    def what_it_takes(self, valued: Valued, *, has_planner: bool) -> str:
        """Say what it takes to apply a plan, or why nobody can; `has_planner` as in `how_to`."""
        kind = valued.kind
        other = _MODES.get(kind, self.mode)
        if other != self.mode and (why := self.why_not.get(other)):
            return f"is not possible: it needs mode {other}, but {why}"
        if self.mode == "mps" and self._is_held(valued):
            return IN_FORCE if self.overlaps else "needs policy pair, for jobs to overlap"
        return how_to(kind, self.mode, has_planner=has_planner)

    def _is_held(self, valued: Valued) -> bool:
        """Tell whether MPS already holds each job to its part of the plan."""
        return valued.kind == "space" and all(
            self.held.get(name) == part.groups for part in valued.plan for name in part.members
        )

    def taking_turns(self) -> Valued | None:
        """Return the forecast for all jobs taking turns on all SMs, as in mode time."""
        names = tuple(self.scene.workers)
        return self.scene.value((Part(self.scene.gpu.groups, names),)) if names else None


def outlook(
    members: Iterable[Group],
    gpus: frozenset[int],
    options: Options,
    model: Interference,
    now_ns: int,
) -> Outlook | None:
    """Return the outlook for all jobs with a process there; None: the SM count is not known."""
    gpu, groups = _gpu(gpus, options), list(members)
    if gpu is None:
        return None
    undivided = why_undivided(groups) if options.mode_of(gpus) == "mps+green" else ""
    gpu = replace(gpu, can_divide=not undivided)
    jobs = [(job, group) for group in groups for job in group.jobs.values() if job.processes]
    doubts = [f"all take turns: {undivided}"] if undivided else []
    workers = [_worker(job, group, gpu, options, doubts, now_ns) for job, group in jobs]
    return Outlook(
        scene=Scene({worker.name: worker for worker in workers}, gpu, model.frozen()),
        mode=options.mode_of(gpus),
        titles={job.display_name: job.spec.name for job, _ in jobs},
        measured_p99_ns={j.display_name: j.latency.p99_ns for j, _ in jobs if j.latency.count},
        model_count=model.count,
        model_error=model.error,
        doubts=tuple(doubts),
        undivided=undivided,
        why_not=_why_not(groups, gpus, options),
        held=_held(jobs, gpu, options) if options.mode_of(gpus) == "mps" else {},
        overlaps=policy_named(options.policy).pace not in (None, Pace.RATED),  # between equals
    )


def _held(jobs: Iterable[tuple[Job, Group]], gpu: Gpu, options: Options) -> dict[str, int]:
    """Return the groups that percentages of MPS come to, by the same measure as `_groups`."""
    found = {}
    for job, group in jobs:
        if all(holds_percentage(job, at) for at in group.gpus):
            part = min(given_sms(job, at, options) / options.sm_counts[at] for at in group.gpus)
            found[job.display_name] = max(1, round(part * gpu.groups))
    return found


def are_of_several_users(groups: Iterable[Group]) -> bool:
    """Tell whether their users differ: then no mode lets them overlap, as MPS serves one user."""
    return len({group.key[0] for group in groups}) > 1


def _why_not(groups: Iterable[Group], gpus: Iterable[int], options: Options) -> dict[str, str]:
    hindrances = {
        mode: [why for gpu in sorted(gpus) if (why := options.hindrance(gpu, mode))]
        for mode in SUBSTRATES
    }
    if are_of_several_users(groups):
        for mode in _MODES.values():
            hindrances[mode].append(
                "mps runs jobs of only one user at a time, and these belong to several"
            )
    return {mode: found[0] for mode, found in hindrances.items() if found}


def why_undivided(groups: Iterable[Group]) -> str:
    """Return whose work no set of SMs would hold, and why; empty: nobody's.

    Such work runs on the SMs of all others, so it takes turns with all of them. Sets would only
    keep the others from SMs that nobody else uses meanwhile.
    """
    for group in groups:
        if any(stays_for_good(process) for process in group.processes.values()):
            return f"work of {group.title} stays on the whole gpu"
        if any(process.has_percentage for process in group.processes.values()):
            return f"{group.title} is limited by an MPS percentage, not by a set"
        if any(process.came_before_sets for process in group.processes.values()):
            return f"{group.title} was there before there were sets"
    return ""


def stays_for_good(process: Process) -> bool:
    """Tell whether work of it stays on the whole GPU, in streams that will not return to a set.

    A stream that was refused its set does not count: once nobody has a set the refusal is gone, and
    it would be refused again with the next set. Nor does a stream that captures: it returns to its
    set, and what it captured counts once it runs.
    """
    staying = zip(StayReason, process.usage.staying_streams, strict=True)
    for_now = (StayReason.REFUSED, StayReason.CAPTURING)
    return process.usage.runs_graphs or any(
        count for reason, count in staying if reason not in for_now
    )


def _gpu(gpus: frozenset[int], options: Options) -> Gpu | None:
    mode, turn_ns = options.mode_of(gpus), options.quantum_ns
    if mode == "mps+green":
        split = min((options.splits[gpu] for gpu in gpus), key=lambda one: one.groups)
        return Gpu(
            groups=split.groups, sms_of_group=split.group_sms, turn_ns=turn_ns, keeps_sizes=True
        )
    sms = min((options.sm_counts.get(gpu, 0) for gpu in gpus), default=0)
    if not sms:
        return None
    if mode == "mig":  # on an instance jobs take turns, whatever is better
        return Gpu(groups=1, sms_of_group=sms, turn_ns=turn_ns)
    group_sms = -(-sms // MOST_GROUPS)
    return Gpu(
        groups=sms // group_sms, sms_of_group=group_sms, turn_ns=turn_ns, can_mix=mode != "mps"
    )


def _worker(
    job: Job, group: Group, gpu: Gpu, options: Options, doubts: list[str], now_ns: int
) -> Worker:
    name, needs = job.display_name, features(group)
    if needs is None:
        doubts.append(f"{name}: what bounds its work is not known, so no slowdown is predicted")
    given = min((given_sms(job, one, options) for one in group.gpus), default=0)
    here_sms = given or gpu.groups * gpu.sms_of_group
    solo_ns, at, here_ns = _length(job, group, gpu, options, here_sms, doubts)
    said = said_share(job.spec, group.gpus, options)
    times, pause_ns = times_and_pause(job, here_ns, here_sms)
    rate, rate_count = job.latency.steady_rate(options.tuner_window_ns, now_ns)
    is_serial = len(job.processes) == 1 and job.latency.is_serial(now_ns)
    return Worker(
        name=name,
        solo_ns=solo_ns,
        at=at,
        features=needs or Features(),
        weight=float(options.weight(job.spec.job_class)),
        slo_ns=job.spec.slo_p99_ns,
        rate=rate,
        rate_count=rate_count,
        times=times,
        sizes=_sizes(job) if is_serial else ALIKE,
        is_serial=is_serial,
        pause_ns=pause_ns,
        rest_ns=max(0.0, job.iteration_ns - here_ns) if serves_bursts(job) else 0.0,
        groups=_groups(job, group, gpu, options, said),
        is_known=job.scaling is not None,
        share=0.0 if divides_space(group.gpus, options) else said,
        tier=policy_named(options.policy).tier(group),
    )


def _sizes(job: Job) -> Sizes:
    """Return the sizes of its requests as measured where it runs now."""
    quick_ns = job.rhythm.quick_ns if job.rhythm and job.rhythm.is_of_requests else 0
    return sizes_of(job.latency.needed_since_moved_ns(), quick_ns)


def _groups(job: Job, group: Group, gpu: Gpu, options: Options, said: float) -> int:
    """Return the number of groups fixed by a person; 0 = any number."""
    if options.mode_of(group.gpus) == "mps+green":
        splits = [options.splits[at] for at in group.gpus]
        return min(gpu.groups, max(groups_asked(job.spec, split) for split in splits))
    return max(1, round(said * gpu.groups)) if said else 0


def _length(
    job: Job, group: Group, gpu: Gpu, options: Options, given: int, doubts: list[str]
) -> tuple[float, Callable[[int], float], float]:
    """Return an iteration's time alone: on all SMs, as a function of SMs, and on its SMs now."""
    all_sms, curve = gpu.groups * gpu.sms_of_group, job.scaling
    # An MPS client's percentage is fixed for good, whatever the size of its part.
    most = given if options.mode_of(group.gpus) == "mps" else all_sms
    if curve is not None:
        scaling = curve
        return curve.at(all_sms), lambda sms: scaling.at(min(sms, most)), curve.at(given)
    known_ns = job.iteration_ns or job.latency.quick_ns
    each = span_of(known_ns) if known_ns else "of unknown length"
    doubts.append(
        f"{job.display_name}: {why_no_curve(job)}: its iterations ({each}) count as if they "
        "filled the gpu, and it gets at least its share by weight"
    )
    here_ns = float(known_ns or UNKNOWN_NS)
    (_, idle_ns), here = times_and_pause(job, here_ns, given), min(given, all_sms)

    def at(sms: int) -> float:
        return idle_ns + (here_ns - idle_ns) * here / sms

    return at(all_sms), lambda sms: at(min(sms, most)), here_ns


def how_to(kind: str, mode: str, *, has_planner: bool = False) -> str:
    """Say what it takes to apply a plan of this kind on a GPU in this mode.

    `has_planner`: a plan is in force there already, and a different one.
    """
    if kind == "time":
        return IN_FORCE if mode in ("time", "mig") else "applies while they take turns"
    if mode == "mps+green":
        return "is not in force" if has_planner else 'takes effect with partition.planner = "on"'
    if mode == "mig":
        return "needs instances of its size, which an admin creates (tandem partition apply --mig)"
    if kind == "time and space":
        return 'needs mode mps+green, with partition.planner = "on"'
    if mode == "mps":
        return (
            "needs jobs to be restarted with these --sm, and policy pair for them to overlap; "
            'or mode mps+green, with partition.planner = "on"'
        )
    return 'needs mode mps (gpu."*".mode)'
