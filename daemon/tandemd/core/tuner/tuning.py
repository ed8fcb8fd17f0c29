"""Connects the tuner to jobs and islands: what requests take goes in, sizes come out.

Where jobs take turns, a size is a share of the time in percent, from which the job's group gets its
weight in fair queueing (space/asked.py). In mode mps+green it is a number of groups of SMs
(sets.py). If a plan divides these, it is the number of the job's part, and another part gives or
takes the difference (exchange.py). A size that a person set stays, and so does one that cannot
change while a job runs: its part of the SMs under MPS. Then the tuner only says what it would give.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tandemd.core.events import RequestsServed
from tandemd.core.model import Group, Job, Options
from tandemd.core.planner.divisions import Division, Divisions, jobs_of
from tandemd.core.planner.exchange import Ease, EaseOf, least, on_offer
from tandemd.core.policies.policy import Policy
from tandemd.core.space.asked import most_promised, said, said_share, share_of, why_no_share
from tandemd.core.substrate import divides_space
from tandemd.core.tuner.tuner import Change, Settings, Sizes, Tuner
from tandemd.core.turns.interference import Interference, Trial
from tandemd.core.words import counted

Islands = Mapping[frozenset[int], list[Group]]

STEP = 5  # percent
FINEST = 1e-9  # percent: sums of shares are no finer


@dataclass(slots=True)
class Tuning:
    """The tuners of all islands. Belongs to the scheduler."""

    tuners: dict[frozenset[int], Tuner] = field(default_factory=dict)  # by island
    wishes: dict[int, Change] = field(default_factory=dict)  # by job: for sizes that are fixed
    reasons: dict[int, str] = field(default_factory=dict)  # by job: why its newest change was made
    _models: dict[frozenset[int], Interference] = field(default_factory=dict)
    _regrouped: set[int] = field(default_factory=set)  # jobs whose groups of SMs the tuner set
    _bound: dict[frozenset[int], list[Job]] = field(default_factory=dict)  # jobs with an objective
    _moved: set[int] = field(default_factory=set)  # jobs that may be in another phase
    divisions: Divisions = field(init=False)

    def __post_init__(self) -> None:
        self.divisions = Divisions(self.model_of)

    def take(self, event: RequestsServed, job: Job) -> None:
        """Take in requests of the job that ended; somebody wants them to be quick."""
        if event.kind > job.latency.kind:
            job.latency.restart(event.kind)
            job.rhythm = None
            self.divisions.forget(job)
        if event.kind is job.latency.kind:
            job.latency.add(event.durations_ns, event.now_ns, event.at_once, event.held_ns)
            self.divisions.served(job, event.durations_ns, event.now_ns)
            for tuner in self.tuners.values():
                tuner.take(job.job_id, event.durations_ns, event.now_ns)

    def note_phase(self, job_id: int) -> None:
        """Note that a process of the job entered another phase."""
        self._moved.add(job_id)

    def seat(self, islands: Islands, options: Options, now_ns: int) -> None:
        """Take jobs that came, went or changed settings: all windows start anew there."""
        if not options.tuner:
            self._give_up(islands)
            return
        self.tuners = {gpus: self.tuners.get(gpus) or Tuner() for gpus in islands}
        self._bound = {}
        for gpus, members in islands.items():
            jobs = jobs_of(members)
            bound = self._bound[gpus] = [job for job in jobs if job.spec.slo_p99_ns]
            slos_ns = {job.job_id: job.spec.slo_p99_ns for job in bound}
            division = self.divisions.by_island.get(gpus)
            under = f"{options.policy}, plan {division.changes}" if division else options.policy
            self.tuners[gpus].seat(slos_ns, [job.job_id for job in jobs], now_ns, under)
        living = {job.job_id for members in islands.values() for job in jobs_of(members)}
        self.wishes = {job_id: wish for job_id, wish in self.wishes.items() if job_id in living}
        self.reasons = {job_id: why for job_id, why in self.reasons.items() if job_id in living}

    def decide(self, islands: Islands, policy: Policy, options: Options, now_ns: int) -> bool:
        """End windows that are over; return whether some job has another size now."""
        if not self.tuners:
            self._moved.clear()
            return False
        settings = Settings(window_ns=options.tuner_window_ns, band=options.tuner_band)
        moved, self._moved = self._moved, set()
        applied = False
        for gpus, tuner in self.tuners.items():
            members = islands.get(gpus, [])
            for job in self._bound.get(gpus, ()) if moved else ():
                is_back = job.job_id in moved and tuner.enter(
                    job.job_id, _phase_of(job), settings.window_ns, now_ns
                )
                sizes = self._sizes(gpus, members, policy, options) if is_back else {}
                change = tuner.resume(job.job_id, sizes, now_ns) if is_back else None
                applied |= change is not None and self._apply(change, members, options, now_ns)
            if tuner.is_due(settings, now_ns):
                sizes = self._sizes(gpus, members, policy, options)
                for change in tuner.decide(sizes, settings, now_ns):
                    applied |= self._apply(change, members, options, now_ns)
        return applied

    def model_of(self, gpus: frozenset[int]) -> Interference:
        """Return the model of how jobs slow each other down there; it outlives the jobs."""
        return self._models.setdefault(gpus, Interference())

    def recall(self, measured: Mapping[int, Sequence[Trial]]) -> None:
        """Recall, by GPU and oldest first, what was measured on such GPUs before the daemon began.

        A GPU that already has a model keeps it. Call this while nobody waits yet: a thousand trials
        take tens of milliseconds.
        """
        for gpu, trials in measured.items():
            if (gpus := frozenset({gpu})) not in self._models:
                self.model_of(gpus).recall(trials)

    def residual(self, job_id: int) -> float | None:
        """Return the residual of a job's last whole window; None: there was none."""
        found = (tuner.residual(job_id) for tuner in self.tuners.values())
        return next((residual for residual in found if residual is not None), None)

    def _sizes(
        self, gpus: frozenset[int], members: list[Group], policy: Policy, options: Options
    ) -> dict[int, Sizes]:
        division = self.divisions.by_island.get(gpus)
        if division is None or division.why_not:
            return sizes_on(members, policy, options)
        return planned_sizes(division, jobs_of(members), self._ease(jobs_of(members), options))

    def _ease(self, jobs: Iterable[Job], options: Options) -> EaseOf:
        """Return a function that tells how easily each job does without a group."""
        known = {job.display_name: job for job in jobs}

        def ease(name: str) -> Ease:
            job = known.get(name)
            if job is None or said(job.spec):
                return Ease.NEEDS
            if not job.spec.slo_p99_ns:
                return Ease.FREE
            has, band = job.groups_wanted, options.tuner_band
            spares = any(t.can_spare(job.job_id, has, band) for t in self.tuners.values())
            return Ease.SPARES if spares else Ease.NEEDS

        return ease

    def _apply(self, change: Change, members: list[Group], options: Options, now_ns: int) -> bool:
        """Set the size of the job's group; return False if nothing changed, as with a wish."""
        group = next(group for group in members if change.job_id in group.jobs)
        if change.is_wish:
            self.wishes[change.job_id] = change
            return False
        self.wishes.pop(change.job_id, None)
        self.reasons[change.job_id] = change.why
        job = group.jobs[change.job_id]
        division = self.divisions.of(job)
        if division is not None and not division.why_not:
            return self._exchange(job, change, members, options, now_ns)
        if job.set is not None:
            return self._regroup(job, change, now_ns)
        if group.tuned_share == change.size / 100:
            return False
        group.tuned_share = change.size / 100
        group.tell(now_ns, f"tuner: its share of time is now {change.size}%: {change.why}")
        return True

    def _exchange(
        self, job: Job, change: Change, members: list[Group], options: Options, now_ns: int
    ) -> bool:
        ease = self._ease(jobs_of(members), options)
        is_done = self.divisions.resize(job, change.size, ease, members, options, now_ns)
        if is_done:
            size = counted(change.size, "group")
            job.tell(now_ns, f"tuner: its part has {size} of SMs now: {change.why}")
        return is_done

    def _regroup(self, job: Job, change: Change, now_ns: int) -> bool:
        if job.groups_wanted == change.size:
            return False
        job.groups_wanted = change.size
        self._regrouped.add(job.job_id)
        size = counted(change.size, "group")
        job.tell(now_ns, f"tuner: it is to have {size} of SMs: {change.why}")
        return True

    def _give_up(self, islands: Islands) -> None:
        """Turn the tuner off: nobody keeps what it gave."""
        if self.tuners:
            self.tuners, self.wishes, self.reasons, self._bound = {}, {}, {}, {}
            self.divisions.revert(islands)
            self._moved.clear()
            for group in (group for members in islands.values() for group in members):
                group.tuned_share = 0.0
                for job in group.jobs.values():
                    if job.job_id in self._regrouped and not said(job.spec):
                        job.groups_wanted = 0
            self._regrouped.clear()


def sizes_on(members: Iterable[Group], policy: Policy, options: Options) -> dict[int, Sizes]:
    """Return what the jobs with an objective on an island have and may have.

    The unit is percent of the time; groups of SMs where sets are used; under MPS percent of the
    SMs, which is fixed. Jobs that have none of these are left out.
    """
    groups = list(members)
    tiers: dict[int, _Tier] = {}
    for group in groups:
        if why_no_share(group, policy, options) is None:
            tier = tiers.setdefault(policy.tier(group), _Tier())
            tier.weight += group.weight
            tier.promised += share_of(group, options)
    found: dict[int, Sizes] = {}
    for group in groups:
        bound = [job for job in group.jobs.values() if job.spec.slo_p99_ns]
        if options.mode_of(group.gpus) == "mps+green":
            found |= {job.job_id: _groups_of_sms(job, groups, options) for job in bound if job.set}
        elif divides_space(group.gpus, options):
            found |= {job.job_id: _part_of_sms(job, group, options) for job in bound}
        elif bound and why_no_share(group, policy, options) is None:
            sizes = _share_of_time(group, bound, tiers[policy.tier(group)], options)
            found |= dict.fromkeys((job.job_id for job in bound), sizes)
    return found


def planned_sizes(division: Division, jobs: Iterable[Job], ease: EaseOf) -> dict[int, Sizes]:
    """Return the same for an island divided by plan: what one part gets another has to give."""
    known = {job.display_name: job for job in jobs}
    found: dict[int, Sizes] = {}
    for part in division.plan:
        members = [known[name] for name in part.members if name in known]
        bound = frozenset(job.job_id for job in members if job.spec.slo_p99_ns)
        offered = on_offer(division.plan, part, ease)
        sizes = Sizes(
            now=part.groups,
            least=least(division.plan, part, ease),
            most=max(part.groups, min(_knee(division, members), part.groups + offered)),
            step=1,
            is_fixed=any(said(job.spec) for job in members),
            together=bound,
        )
        found |= dict.fromkeys(bound, sizes)
    return found


def _knee(division: Division, members: Iterable[Job]) -> int:
    """Return the groups beyond which no member gains; all, if one member's curve is not known."""
    assert division.seen is not None
    gpu, curves = division.seen.scene.gpu, [job.scaling for job in members]
    known = [curve for curve in curves if curve is not None]
    if not known or len(known) < len(curves):
        return gpu.groups
    return max(-(-curve.knee() // gpu.sms_of_group) for curve in known)


@dataclass(slots=True)
class _Tier:
    """Groups that take turns with each other, taken together."""

    weight: float = 0.0
    promised: float = 0.0  # of the time


def _part_of_sms(job: Job, group: Group, options: Options) -> Sizes:
    now = round(100 * said_share(job.spec, group.gpus, options)) or 100
    return Sizes(now=now, least=STEP, most=100, step=STEP, is_fixed=True)


def _groups_of_sms(job: Job, groups: Iterable[Group], options: Options) -> Sizes:
    """Return the sizes; a job that shares what is left counts as having its part of that."""
    split = min((options.splits[p.gpu] for p in job.processes.values()), key=lambda s: s.groups)
    others = [other for other in jobs_of(groups) if other is not job]
    sharing = sum(not other.groups_wanted for other in others)
    promised = sum(other.groups_wanted for other in others)
    most = split.groups - promised - bool(sharing)
    if job.scaling is not None:
        most = min(most, -(-job.scaling.knee() // split.group_sms))
    held = job.set.count if job.set else 0
    now = held if job.groups_wanted else max(1, held // (1 + sharing))
    return Sizes(now=now, least=1, most=max(1, most), step=1, is_fixed=bool(said(job.spec)))


def _share_of_time(group: Group, bound: Iterable[Job], tier: _Tier, options: Options) -> Sizes:
    now = group.owed_share or group.weight / tier.weight
    others = tier.promised - share_of(group, options)
    is_fixed = any(said(job.spec) for job in group.jobs.values())
    return Sizes(
        now=round(100 * now),
        least=STEP,
        most=int(100 * (most_promised(options) - others) + FINEST),
        step=STEP,
        is_fixed=is_fixed,
        together=frozenset(job.job_id for job in bound),
    )


def _phase_of(job: Job) -> int:
    """Return the phase of its first process that is in one; 0 = none is."""
    phases = (process.usage.phase_hash for process in job.processes.values())
    return next((phase for phase in phases if phase), 0)
