"""Applies plans: how a GPU in mode mps+green is divided among its jobs, and since when.

A plan divides the SMs into parts (plans.py). Jobs of one part share a set of SMs (set_places.py)
and take turns on it; jobs of different parts run side by side, each part on SMs of its own.

Rules
1. What plans depend on is looked at when jobs come or go, when a job's settings change, when it
   becomes known how a job scales (until then that was a guess), and once a window. Plans are made
   elsewhere, because that takes up to 0.1 s: `FindPlan` asks for one, and `PlanFound` answers. The
   answer to an older question is ignored.
2. Which plan is in force, and for how long, is up to the planner (planner.py).
3. Until its plan is there, a new job takes turns with the jobs of the largest part, and a job that
   has left leaves its part empty: so nobody moves twice.
4. Between plans the tuner may move groups of SMs from part to part (exchange.py). A window has one
   change: the tuner's windows start anew with a plan, and after a change by the tuner the next look
   is a window away.
5. Where something keeps jobs from running side by side, all jobs take turns, and the reason is
   given. If the reason is work that no set would hold, nobody has a set meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from tandemd.core.events import FindPlan, PlanFound
from tandemd.core.model import Group, Job, Options, Split
from tandemd.core.planner.exchange import EaseOf, resized
from tandemd.core.planner.kept_plans import Kept, Measured, Tally
from tandemd.core.planner.planner import Planner
from tandemd.core.planner.planning import (
    Outlook,
    are_of_several_users,
    how_to,
    outlook,
    why_undivided,
)
from tandemd.core.planner.plans import Part, Plan, Valued
from tandemd.core.policies.policy import Policy
from tandemd.core.space.set_places import groups_asked
from tandemd.core.turns.companions import Pace
from tandemd.core.turns.interference import Interference
from tandemd.core.words import counted

Islands = Mapping[frozenset[int], list[Group]]
Splits = Mapping[int, Split]  # by GPU
ModelOf = Callable[[frozenset[int]], Interference]

MOST_KEPT = 4  # former plans that are remembered


@dataclass(slots=True)
class Division:
    """How one island is divided."""

    why_not: str = ""  # why all take turns, whatever would be better; empty: the plan applies
    plan: Plan = ()  # in force; empty: none yet
    valued: Valued | None = None  # the plan with its forecasts
    why: str = ""  # why this plan and not the one before
    others: tuple[Valued, ...] = ()  # the best of each kind at the newest look, best first
    seen: Outlook | None = None  # the outlook at that look
    tally: Tally = field(default_factory=Tally)  # what was measured since the plan came into force
    kept: list[Kept] = field(default_factory=list)  # former plans, the newest last
    changes: int = 0  # of plans so far
    planner: Planner = field(default_factory=Planner)
    key: object = None  # what the newest question was based on
    asked: int = 0  # the number of that question
    is_open: bool = False  # it has not been answered yet
    failure: str = ""  # why the newest answer has no plan
    look_at_ns: int = 0  # when to look again
    numbers: dict[frozenset[str], int] = field(default_factory=dict)  # of parts, by their jobs

    def part_of(self, name: str) -> Part | None:
        """Return the part a job is in; None: it is in none, because all take turns on all SMs."""
        if len(self.plan) < 2 and not self._leaves_groups():
            return None
        return next((part for part in self.plan if name in part.members), None)

    def measured(self, jobs: Iterable[Job], now_ns: int) -> dict[str, Measured]:
        """Return what was measured under the plan so far; empty while there is none."""
        if self.valued is None or self.seen is None:
            return {}
        return self.tally.measured(jobs, self.seen.scene.workers, now_ns)

    def keeping(self, jobs: Collection[Job], now_ns: int) -> set[str]:
        """Return the jobs that were measured to keep their objectives under the plan."""
        slos_ns = {job.display_name: job.spec.slo_p99_ns for job in jobs}
        measured = self.measured(jobs, now_ns)
        return {name for name, one in measured.items() if 0 < one.p99_ns <= slos_ns[name]}

    def _leaves_groups(self) -> bool:
        """Tell whether groups stay free, because a person fixed the size of a job that is alone."""
        planned = sum(part.groups for part in self.plan)
        return bool(planned) and self.seen is not None and planned < self.seen.scene.gpu.groups


@dataclass(frozen=True, slots=True)
class InForce:
    """What is in force on an island."""

    plan: Plan = ()  # empty: all take turns
    why: str = ""  # why this, and not another plan
    measured: Mapping[str, Measured] = field(default_factory=dict)  # by job, while it is in force
    has_planner: bool = True  # plans are applied, or would be if they could


class Divisions:
    """The divisions of all islands. Belongs to the scheduler."""

    def __init__(self, model_of: ModelOf) -> None:
        """`model_of`: returns how much jobs on the GPUs of an island slow each other down."""
        self.by_island: dict[frozenset[int], Division] = {}
        self._model_of = model_of
        self._parts = 0  # parts numbered so far
        self._asked = 0  # questions, counted over all islands, so that a number belongs to only one
        self._questions: list[FindPlan] = []

    @property
    def planned_gpus(self) -> frozenset[int]:
        """GPUs where sets of SMs follow the plan, and nobody else sizes them."""
        found = (gpus for gpus, division in self.by_island.items() if not division.why_not)
        return frozenset(gpu for gpus in found for gpu in gpus)

    def of(self, job: Job) -> Division | None:
        """Return the division of the island that a job is on; None: nothing is planned there."""
        gpus = {gpu for process in job.processes.values() for gpu in process.gpus}
        return next((one for own, one in self.by_island.items() if gpus & own), None)

    def in_force(
        self, gpus: frozenset[int], members: Iterable[Group], options: Options, now_ns: int
    ) -> InForce:
        """Return the plan in force on an island and why; or why there is none."""
        division = self.by_island.get(gpus)
        if not options.planner:
            why_not = "no plan is in force: partition.planner is off"
            return InForce(why=why_not, has_planner=False)
        if division is None or division.why_not:
            why_not = division.why_not if division else "there are no jobs"
            return InForce(why=f"all take turns: {why_not}")
        return InForce(division.plan, division.why, division.measured(jobs_of(members), now_ns))

    def is_due(self, now_ns: int) -> bool:
        """Tell whether some island is due for another look."""
        divisions = self.by_island.values()
        return bool(divisions) and any(
            now_ns >= one.look_at_ns and not one.is_open for one in divisions
        )

    def seat(self, islands: Islands, policy: Policy, options: Options, now_ns: int) -> None:
        """Look at the islands: jobs came or went, their settings changed, or a window is over."""
        for gpus in list(self.by_island):
            if not options.planner or gpus not in islands:
                self._dissolve(self.by_island.pop(gpus), islands.get(gpus, ()), options.splits)
        for gpus, members in islands.items() if options.planner else ():
            division = self.by_island.setdefault(gpus, Division())
            self._look(gpus, division, members, policy, options, now_ns)

    def take_questions(self) -> list[FindPlan]:
        """Return, once, the questions to be answered."""
        questions, self._questions = self._questions, []
        return questions

    def take(self, event: PlanFound, islands: Islands) -> bool:
        """Take in an answer; return whether a job is to run on other SMs now."""
        division, members = self.by_island.get(event.gpus), islands.get(event.gpus)
        if division is None or members is None or event.number != division.asked:
            return False
        seen = division.seen
        assert seen is not None
        division.is_open, division.failure = False, event.failure
        if not event.found:
            return False
        division.others = event.found
        kept = division.keeping(jobs_of(members), event.now_ns)
        why = division.planner.take(seen.scene, event.found[0], division.plan, kept=kept)
        chosen = division.planner.current
        assert chosen is not None
        if not why:
            division.valued = seen.scene.value(division.plan)
            return False
        is_new = set(chosen.plan) != set(division.plan)
        self._keep(division, members, event.now_ns)
        division.plan, division.valued, division.why = chosen.plan, chosen, why
        division.changes += 1
        self._place(division, members)
        if is_new:
            _tell(division, members, event.now_ns)
        return is_new

    def served(self, job: Job, durations_ns: Iterable[int], now_ns: int) -> None:
        """Count requests of a job that ended."""
        if division := self.of(job):
            division.tally.take(job, durations_ns, now_ns)

    def forget(self, job: Job) -> None:
        """Start the job's requests anew, because they are told apart in another way from now on."""
        if division := self.of(job):
            division.tally.forget(job)

    def revert(self, islands: Islands) -> None:
        """Return to what was planned, because nobody tunes it any more."""
        for gpus, division in self.by_island.items():
            chosen = division.planner.current
            if chosen is not None and division.plan and gpus in islands:
                names = {name for part in division.plan for name in part.members}
                if names == set(chosen.forecasts):
                    division.plan, division.valued = chosen.plan, chosen
                    self._place(division, islands[gpus])

    def resize(
        self,
        job: Job,
        groups: int,
        ease: EaseOf,
        members: list[Group],
        options: Options,
        now_ns: int,
    ) -> bool:
        """Resize the part of a job, as far as another part gives or takes the difference.

        Returns whether the plan changed.
        """
        division = self.of(job)
        own = division.part_of(job.display_name) if division else None
        if division is None or own is None or division.seen is None:
            return False
        plan = resized(division.plan, own, groups, ease)
        if plan == division.plan:
            return False
        self._keep(division, members, now_ns)
        division.plan, division.valued = plan, division.seen.scene.value(plan)
        division.look_at_ns = now_ns + options.tuner_window_ns
        self._place(division, members)
        return True

    def _look(
        self,
        gpus: frozenset[int],
        division: Division,
        members: list[Group],
        policy: Policy,
        options: Options,
        now_ns: int,
    ) -> None:
        why_not = why_not_beside(members, gpus, policy, options)
        splits = [options.splits.get(gpu) for gpu in sorted(gpus)]
        said = [_said_of(job) for job in jobs_of(members)]
        key = (why_not, why_undivided(members), splits, said)
        is_news = key != division.key
        if not is_news and (division.is_open or now_ns < division.look_at_ns):
            return
        division.key, division.look_at_ns = key, now_ns + options.tuner_window_ns
        seen = outlook(members, gpus, options, self._model_of(gpus), now_ns)
        if seen is None:
            division.why_not = "how many SMs it has is not known"
            return
        division.seen = _in_time_alone(seen) if why_not else seen
        division.planner.band = options.tuner_band
        if is_news:
            self._house(division, members, why_not, options.splits)
        self._asked += 1
        division.asked, division.is_open = self._asked, True
        scene = division.seen.scene
        self._questions.append(FindPlan(gpus=gpus, number=division.asked, scene=scene))

    def _house(
        self, division: Division, members: list[Group], why_not: str, splits: Splits
    ) -> None:
        """Drop jobs that have gone from their parts; new ones take turns in the largest for now."""
        was_planned, division.why_not = not division.why_not, why_not
        if why_not:
            if was_planned:
                self._dissolve(division, members, splits)
            return
        here = {job.display_name for job in jobs_of(members)}
        new = here - {name for part in division.plan for name in part.members}
        stay = {part: [n for n in part.members if n in here] for part in division.plan}
        largest = max((p for p in stay if stay[p]), key=lambda part: part.groups, default=None)
        if largest is not None:
            stay[largest] += sorted(new)
        housed = tuple(Part(part.groups, tuple(stay[part])) for part in stay if stay[part])
        if housed != division.plan:
            division.plan = housed
            division.planner.forget()
        self._place(division, members)

    def _keep(self, division: Division, members: Iterable[Group], now_ns: int) -> None:
        """Remember what was measured under the old plan, and start counting anew."""
        jobs = jobs_of(members)
        measured = division.measured(jobs, now_ns)
        if division.valued is not None and measured:
            division.kept.append(Kept(division.valued, measured))
            del division.kept[:-MOST_KEPT]
        division.tally = Tally.of(jobs, now_ns)

    def _place(self, division: Division, members: Iterable[Group]) -> None:
        """Tell jobs which part they are in, and how many groups it has."""
        if division.why_not:
            return  # nobody has any groups
        numbers: dict[frozenset[str], int] = {}
        for one in division.plan:
            whole = frozenset(one.members)
            if whole not in division.numbers:
                self._parts += 1
            numbers[whole] = division.numbers.get(whole, self._parts)
        division.numbers = numbers
        for job in jobs_of(members):
            part = division.part_of(job.display_name)
            job.part = numbers[frozenset(part.members)] if part else 0
            job.groups_wanted = part.groups if part else 0  # otherwise all take turns on all SMs

    def _dissolve(self, division: Division, members: Iterable[Group], splits: Splits) -> None:
        """Take from jobs what a plan gave them; a job with a size of its own gets that again."""
        division.plan, division.numbers = (), {}
        division.planner.forget()
        for job in jobs_of(members):
            gpus = {process.gpu for process in job.processes.values()} & splits.keys()
            asked = max((groups_asked(job.spec, splits[gpu]) for gpu in gpus), default=0)
            was_in, job.part = job.part, 0
            if was_in or asked:
                job.groups_wanted = asked


def why_not_beside(
    members: Iterable[Group], gpus: frozenset[int], policy: Policy, options: Options
) -> str:
    """Return why all jobs of an island must take turns, whatever is better; empty: no reason."""
    groups, mode = list(members), options.mode_of(gpus)
    if are_of_several_users(groups):
        return "under mps only jobs of one user run side by side"
    if mode != "mps+green":
        return f"in mode {mode}, a plan in space {how_to('space', mode)}"
    if len(gpus) > 1:
        return "a job is on several gpus at once"
    if policy.by_lanes or policy.pace not in (None, Pace.FREE):
        return f"under {options.policy} the policy itself decides which jobs run side by side"
    found = (why for group in groups if (why := _why_not_beside(group, options)))
    return next(found, "")


def _why_not_beside(group: Group, options: Options) -> str:
    """Return the same for one group alone."""
    if sum(bool(job.processes) for job in group.jobs.values()) > 1:
        return f"{group.title} are one group, and run as one"
    classes = {job.spec.job_class for job in group.jobs.values()}
    if classes & options.swappable_classes or any(j.spec.swappable for j in group.jobs.values()):
        return f"memory of {group.title} may be moved to the host, and comes back with its turn"
    return ""


def _in_time_alone(seen: Outlook) -> Outlook:
    """Return the outlook without division in space, for where all take turns."""
    whole = replace(seen.scene.gpu, can_divide=False)
    return replace(seen, scene=replace(seen.scene, gpu=whole))


def _tell(division: Division, members: Iterable[Group], now_ns: int) -> None:
    for job in jobs_of(members):
        part = division.part_of(job.display_name)
        what = "all take turns on all SMs"
        if part is not None:
            others = [name for name in part.members if name != job.display_name]
            what = f"{counted(part.groups, 'group')} of SMs"
            what += f", in turns with {', '.join(others)}" if others else " of its own"
        job.tell(now_ns, f"planned: {what}: {division.why}")


def _said_of(job: Job) -> tuple[object, ...]:
    """Return all settings of a job that plans depend on, and whether its scaling is known."""
    spec = job.spec
    sizes = (spec.sm_count, spec.sm_percent)
    is_known = job.scaling is not None
    return (job.job_id, job.display_name, spec.job_class, spec.slo_p99_ns, is_known, *sizes)


def jobs_of(members: Iterable[Group]) -> list[Job]:
    """Return the jobs that have a process on a GPU."""
    return [job for group in members for job in group.jobs.values() if job.processes]
