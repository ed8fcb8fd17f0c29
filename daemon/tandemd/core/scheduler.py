"""The scheduler: `handle(event) -> list[Action]`.

Rules
1. The scheduler owns all jobs, groups and processes; nothing else changes them. It has no clock and
   does no I/O: the same events give the same actions.
2. Every event first updates facts. Then `settle` compares the desired state with what was last told
   to the processes, and returns the difference. Gates close before others open.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import chain
from typing import assert_never

from tandemd.core import finished
from tandemd.core.cancels import KILL, Cancels
from tandemd.core.curves.shifts import Shifts
from tandemd.core.energy import EnergyLedger
from tandemd.core.errors import UnknownJobError
from tandemd.core.events import (
    Action,
    AnnounceJob,
    CeilingSet,
    ChargeGroup,
    CurveRecorded,
    Event,
    FindingBegan,
    FindingEnded,
    ForgetProcess,
    GpuAdded,
    HandleShared,
    JobCancelled,
    JobExited,
    JobPaused,
    JobRegistered,
    JobResumed,
    JobTurnedAway,
    JobUpdated,
    KeepTrials,
    MemoryAudited,
    MpsClientsListed,
    PlanFound,
    PolicyChanged,
    PoolCopied,
    PoolMade,
    PoolRefused,
    ProcessAttached,
    ProcessCheckpointed,
    ProcessExited,
    ProcessMapped,
    RequestsServed,
    ScalingTold,
    SubstrateFailed,
    Ticked,
    UsageSampled,
    WakeAt,
    WorkClassified,
)
from tandemd.core.islands import Island, islands_of
from tandemd.core.lanes import places as lane_places
from tandemd.core.lanes.places import LanePlaces
from tandemd.core.memory.audit import take_audit
from tandemd.core.memory.checkpoints import Checkpoints
from tandemd.core.memory.line import MemoryLine
from tandemd.core.memory.line_places import MemoryPlaces
from tandemd.core.memory.memories import equal_parts, sharing
from tandemd.core.memory.minima import Minima, gpus_of, objection
from tandemd.core.memory.refusals import refusals_since
from tandemd.core.memory.residency import Residency
from tandemd.core.model import (
    NO_LIMIT,
    Bound,
    Group,
    GroupKey,
    Job,
    JobSpec,
    JobState,
    Options,
    Process,
    Usage,
)
from tandemd.core.notices import Notices, waited_for
from tandemd.core.planner.divisions import Divisions
from tandemd.core.policy import policy_named
from tandemd.core.settings import has_siblings
from tandemd.core.space.asked import said, unfit, weigh
from tandemd.core.space.mps_clients import take_clients, tell_of_mps
from tandemd.core.space.probes import Probes
from tandemd.core.space.set_places import SetPlaces, groups_asked
from tandemd.core.space.sized_sets import SizedSets
from tandemd.core.space.sm_counts import take_scaling
from tandemd.core.spec_words import changes_of, describe
from tandemd.core.states import Stimulus, advance
from tandemd.core.substrate import SUBSTRATES
from tandemd.core.sums import totals
from tandemd.core.ties import Ties
from tandemd.core.told import Told
from tandemd.core.tuner.latency import RequestKind
from tandemd.core.tuner.pauses import has_requests, note_rhythm
from tandemd.core.tuner.tuning import Tuning
from tandemd.core.turns.companions import Pace
from tandemd.core.turns.forecast import has_short_gaps
from tandemd.core.turns.phase_gate import PhaseGate
from tandemd.core.turns.pieces import Kind
from tandemd.core.turns.rings import Ring, Rings
from tandemd.core.turns.turns import Turns, Verdict
from tandemd.core.words import counted


class Scheduler:
    """Decides who computes. Belongs to one thread."""

    def __init__(self, options: Options | None = None) -> None:
        self.options = options or Options()
        self.policy = policy_named(self.options.policy)
        self.jobs: dict[int, Job] = {}
        self.finished: dict[int, Job] = {}  # oldest first
        self.groups: dict[GroupKey, Group] = {}
        self.processes: dict[int, Process] = {}
        self.islands: dict[frozenset[int], list[Group]] = {}
        self.rings = Rings()
        self.memory = MemoryPlaces(
            MemoryLine(self.processes, self.jobs, self.groups), self.processes
        )
        self.residency = Residency(self.memory.line)
        self.checkpoints, self.cancels, self.notices = Checkpoints(), Cancels(), Notices()
        self.shifts = Shifts(self.processes, self.jobs)
        self.phases = PhaseGate()
        self.lanes = LanePlaces()
        self.tuning, self.energy = Tuning(), EnergyLedger()
        self.sets, self.probes, self.sized_sets = SetPlaces(), Probes(), SizedSets()
        self._wakers = (  # parts, besides the turns, that ask to be woken
            self.memory,
            self.residency,
            self.checkpoints,
            self.cancels,
            self.notices,
            self.shifts,
            self.phases,
            self.lanes,
            self.sets,
            self.probes,
        )
        self._ties, self._minima = Ties(), Minima()
        self._told = Told()
        # Groups with processes that leave each other more or less memory than before.
        self._left_otherwise: set[GroupKey] = set()
        self._arrivals = self._group_numbers = 0
        self._structure_changed = True
        self._wake_at_ns: int | None = None

    def handle(self, event: Event) -> list[Action]:
        """Apply one event; return the actions it calls for, in order.

        Raises:
            CoreError: see `apply`.
        """
        return [*self.apply(event), *self.settle(event.now_ns)]

    def apply(self, event: Event) -> list[Action]:
        """Record the facts of one event; `settle` draws the conclusions, once for many events.

        Raises:
            UnknownJobError: the event names a job that does not exist.
            UnknownPolicyError: the event names a policy that does not exist.
            IllegalTransitionError: a bug: the event is impossible in the present state.
        """
        actions: list[Action] = []
        match event:
            case UsageSampled():
                self._take_samples(event, actions)
            case Ticked():
                pass  # for changes that time alone brings
            case (
                WorkClassified()
                | RequestsServed()
                | CurveRecorded()
                | ScalingTold()
                | MemoryAudited()
                | ProcessCheckpointed()
                | SubstrateFailed()
                | MpsClientsListed()
                | FindingBegan()
                | FindingEnded()
            ):
                self._take_observation(event, actions)
            case ProcessAttached() | ProcessMapped() | ProcessExited():
                self._change_process(event, actions)
            case HandleShared() | GpuAdded() | PoolRefused() | PoolMade() | PoolCopied():
                self._extend_process(event, actions)
            case (
                JobRegistered()
                | JobExited()
                | JobTurnedAway()
                | JobUpdated()
                | JobPaused()
                | JobResumed()
                | JobCancelled()
            ):
                self._change_job(event, actions)
            case PolicyChanged() | PlanFound() | CeilingSet():
                self._change_rules(event)
            case _:
                assert_never(event)
        return actions

    def settle(self, now_ns: int) -> list[Action]:
        """Compare the desired state with what was told; return the difference, in order."""
        finished.forget_before(self.finished, now_ns - self.options.finished_kept_ns)
        self._let_lapse(now_ns)
        actions = self._pause_told(now_ns)
        actions += self._pace(now_ns)  # before turns: a group that is kept back wants none
        self._settle_lanes(now_ns)
        if not self._structure_changed:  # otherwise the islands are outdated
            self._structure_changed = self.tuning.decide(
                self.islands, self.policy, self.options, now_ns
            )
        self._structure_changed |= self.divisions.is_due(now_ns)
        self._review_memory(now_ns)
        self._settle(now_ns, actions)
        if self.policy.by_lanes:
            actions += self.lanes.tell(self.processes)  # after the gates
        if self.options.splits or self.probes.wake_at_ns is not None:
            self.probes.decide(self.jobs, self.options, now_ns)
            probed = self.probes.gpus
            planned = self.divisions.planned_gpus
            self.sized_sets.decide(self.jobs, self.options, now_ns, probed=probed, planned=planned)
        if self.options.splits or self.options.may_have_sets or self.sets.is_used:
            actions += self.sets.decide(self.processes, self.jobs, self.options, now_ns)
        actions += self.divisions.take_questions()
        actions += self.cancels.decide(self.jobs, now_ns)
        if self.residency.is_used:
            actions += self._move_memory(now_ns)
        if self.checkpoints.is_used:
            actions += self.checkpoints.decide(self.groups.values(), now_ns)
        # The memory line goes after the limits that it depends on.
        actions += [*self._tell_reserves(), *self.memory.settle(now_ns, self.options)]
        self._tell_wake(now_ns, actions)
        return actions

    def _tell_reserves(self) -> list[Action]:
        told: list[Action] = [*self.memory.line.reserves.tell()]
        if self.memory.line.reserves.gave_more:
            self.memory.note_change()
        return told

    def _review_memory(self, now_ns: int) -> None:
        """Tell the turns what memory means for them, before turns are given."""
        if not self.residency.is_used:
            return
        if self._structure_changed:
            self._seat(now_ns)
            self.residency.seat(self._memory_islands())
        for group in self.residency.review(now_ns):
            wanted = group.wants
            _refresh(group, now_ns, self.options)
            if group.wants and not wanted:
                self.rings.forget_old_credit(group, self.options)
            self._note(group)
            self.rings.touch(group)

    def _move_memory(self, now_ns: int) -> list[Action]:
        moves = self.residency.decide(now_ns)
        if self.memory.line.tell_turns(asleep=self.residency.asleep, helped=self.residency.helped):
            self.memory.note_change()
        return list(moves)

    def _memory_islands(self) -> Iterator[Island]:
        """The islands as one ring each: where memory moves, GPUs are not divided (divisions.py)."""
        for gpus, members in self.islands.items():
            yield Island(
                gpus=gpus,
                members=members,
                turns=next(turns for ring, turns in self.rings.turns.items() if ring[0] == gpus),
                policy=self.policy,
                options=self.options,
            )

    def change_options(self, options: Options, *, now_ns: int) -> list[Action]:
        """Continue with other settings, the policy included (a re-read configuration)."""
        has_other_splits = options.splits != self.options.splits
        self.options = options
        self.memory.note_change()  # the size of a GPU may have become known
        self._keep_minima(now_ns)
        for job in self.jobs.values() if has_other_splits else ():
            if said(job.spec) and not gpus_of(job) & self.divisions.planned_gpus:
                self._ask_for_groups(job)
        return self.handle(PolicyChanged(now_ns=now_ns, policy=options.policy))

    @property
    def divisions(self) -> Divisions:
        """The divisions of GPUs by plan."""
        return self.tuning.divisions

    def job(self, job_id: int) -> Job:
        """Return a living or finished job.

        Raises:
            UnknownJobError: there is no such job, or it was forgotten.
        """
        job = self.jobs.get(job_id) or self.finished.get(job_id)
        if job is None:
            raise UnknownJobError(f"no job is named 'j-{job_id:x}'")
        return job

    def group_of(self, job: Job) -> Group | None:
        """The group of a living job."""
        return self.groups.get(job.group_key)

    def island_of(self, group: Group) -> tuple[list[Group], Turns] | None:
        """The groups it takes turns with, itself included, and their turns; None if not seated."""
        ring = self.rings.of(group)
        return None if ring is None else (self.rings.members[ring], self.rings.turns[ring])

    def to_classify(self) -> list[tuple[Process, bool]]:
        """Processes for which the policy wants to know what bounds their work.

        Each comes with whether it has its GPU to itself now. Processes that share a turn are left
        out: a recording made meanwhile would not tell.
        """
        if not self.options.mps_gpus:
            return []
        return [
            (process, self._is_alone(group, ring))
            for ring, members in self.rings.members.items()
            if len(self.islands[ring[0]]) > 1
            for group in members
            if self._wants_bound(group) and not self.rings.turns[ring].is_shared_by(group)
            for process in group.processes.values()
        ]

    def _wants_bound(self, group: Group) -> bool:
        options, companions = self.options, self.policy.companions
        if options.planner and options.classify_kernels and options.overlaps(group.gpus):
            return True  # plans depend on whom it slows down
        return companions is not None and companions.wants_bound(group, options)

    def _is_alone(self, group: Group, ring: Ring) -> bool:
        """Tell whether it has the turn and nobody else has work on the GPU."""
        others = (other for other in self.islands[ring[0]] if other is not group)
        return self.rings.turns[ring].is_alone(group) and not any(other.busy for other in others)

    def to_record(self) -> list[Process]:
        """Processes whose memory curves decide when their iterations begin."""
        return [p for p in self.processes.values() if self.shifts.tenant(p.process_id)]

    def to_scale(self) -> list[tuple[Job, Process]]:
        """Processes whose scaling with SMs matters: all that are on a GPU."""
        return [(job, p) for job in self.jobs.values() for p in job.processes.values()]

    def others_at_once(self, job: Job) -> Iterator[Job]:
        """Jobs whose kernels may run at the same time as the job's, as far as turns tell."""
        for other in self.jobs.values():
            if other is not job and not self._take_turns(job, other):
                yield other

    def _take_turns(self, job: Job, other: Job) -> bool:
        """Tell whether they alternate: one begins when the other's work has ended."""
        pair = [self.group_of(job), self.group_of(other)]
        groups = [group for group in pair if group is not None and not group.undrainable]
        homes = set(map(self.rings.of, groups))
        return (
            len(groups) == 2
            and len(homes) == 1
            and groups[0] is not groups[1]
            and self.policy.companions is None
            and not any(map(self.policy.always_open, groups))
        )

    def objection_to(
        self, spec: JobSpec, job: Job | None = None, gpus: frozenset[int] = frozenset()
    ) -> str | None:
        """Why the minimum of a new job, or the new minimum of a living job, cannot be promised.

        The ceiling of the job's user is checked by `objection_for_user`. `job`: the living job, or
        one without processes whose place and promise the new job takes. `gpus`: those that a new
        job is bound to; none: any will do.
        """
        capacity_bytes = self.memory.line.capacity_bytes
        whole = equal_parts(capacity_bytes)
        meant = {gpu: whole[gpu] for gpu in gpus or capacity_bytes if gpu in capacity_bytes}
        if self.policy.by_lanes and (told := lane_places.objection([spec], meant)):
            return told
        if job and (group := self.group_of(job)):
            told = lane_places.growth_objection(self.lanes.of(group), job, spec)
            if told:
                return told
        bound = (gpus_of(job) if job else gpus) or gpus
        kept_free = self.memory.line.reserves.sizes_bytes
        room = self._minima.left(capacity_bytes, job, kept_free=kept_free)
        return objection(spec, room, bound, name=self.options.name_of)

    def objection_for_user(
        self, spec: JobSpec, uid: int, job: Job | None = None, gpus: frozenset[int] = frozenset()
    ) -> str | None:
        """Why the same request exceeds what all jobs of its user may have."""
        ceilings = self.memory.line.ceilings
        if not ceilings.binds(uid):
            return None
        key, known = ceilings.of(uid).key, self.memory.line.capacity_bytes.keys()
        if self.policy.by_lanes and (
            told := lane_places.objection_for_user(spec, ceilings.on(uid, gpus & known), key)
        ):
            return told
        bound = (gpus_of(job) if job else gpus) or gpus
        room = self._minima.left(ceilings.on(uid), job, uid=uid, key=key)
        return objection(spec, room, bound, name=self.options.name_of)

    def line_before(self, spec: JobSpec, uid: int, gpus: Collection[int]) -> str | None:
        """Why a new job would have to stand in line on each of `gpus`; None: it would not.

        Without `gpus`, any GPU will do.
        """
        if not self.policy.by_lanes:
            return None
        key = (uid, f"g:{spec.group}")  # a job without a group matches no group of that name
        key = self._ties.home_of(key) or key
        known = equal_parts(self.memory.line.capacity_bytes)
        meant = {gpu: known[gpu] for gpu in gpus or known if gpu in known}
        return self.lanes.line_before(spec, key, meant, self.options)

    def check_invariants(self) -> None:
        """Raise AssertionError if the scheduler contradicts itself."""
        for gpu, size_bytes in self.memory.line.capacity_bytes.items():
            kept = [
                job
                for job in self.jobs.values()
                if job.is_minimum_kept and sharing(gpus_of(job), [gpu])
            ]
            assert sum(job.spec.memory_min_bytes for job in kept) <= size_bytes, "broken promises"
            for uid in {job.uid for job in kept}:
                most_bytes = self.memory.line.ceilings.on(uid, [gpu]).get(gpu, size_bytes)
                own_bytes = sum(job.spec.memory_min_bytes for job in kept if job.uid == uid)
                assert own_bytes <= most_bytes, "promised more than the user may have"
        for group in self.groups.values():
            gates = {self._told.gates[process_id] for process_id in group.processes}
            assert len(gates) <= 1, f"group {group.title} is split"
            assert group.jobs, f"group {group.key} has no job"
            assert not (group.is_closed and True in gates), f"paused group {group.title} is open"
        assert self._told.settings.keys() == self._told.gates.keys() == self.processes.keys()
        for ring, members in self.rings.members.items():
            turns = self.rings.turns[ring]
            keys = {group.key for group in members}
            assert turns.holder is None or turns.holder in keys, "a gone group holds the turn"
            assert turns.companion is None or turns.companion in keys, "a gone group has a part"
            assert turns.companion is None or turns.companion != turns.holder, "its own companion"
            assert turns.third is None or turns.third in keys, "a gone group has a part"
            two = (turns.holder, turns.companion)
            assert turns.third is None or turns.third not in two, "one of two is the third, too"
            assert turns.third is None or None not in two, "a third without two"
        for job in self.jobs.values():
            assert job.state is not JobState.EXITED
            assert self.groups[job.group_key].jobs[job.job_id] is job, "it is in another group"
            assert job.registered or job.processes, f"{job.display_name} should have ended"

    # Facts

    def _change_process(
        self, event: ProcessAttached | ProcessMapped | ProcessExited, actions: list[Action]
    ) -> None:
        match event:
            case ProcessAttached():
                self._attach(event, actions)
            case ProcessMapped():
                self.processes[event.process_id].mapped = True
            case ProcessExited():
                self._detach(event, actions)
            case _:
                assert_never(event)
        self._structure_changed = True

    def _extend_process(
        self,
        event: HandleShared | GpuAdded | PoolRefused | PoolMade | PoolCopied,
        actions: list[Action],
    ) -> None:
        process = self.processes[event.process_id]
        job = self.jobs[process.job_id]
        match event:
            case GpuAdded():
                if event.gpu in process.gpus:
                    return
                process.gpus |= {event.gpu}
                self.memory.note_arrival()
                self._keep_minima(event.now_ns)
                name = self.options.name_of(event.gpu)
                job.tell(event.now_ns, f"also uses gpu {name} now: its turns are on both at once")
                self._structure_changed = True
            case HandleShared():
                for other_id in sorted(self._ties.share(job, event.key)):
                    self._join(job, self.jobs[other_id], event.now_ns, actions)
            case PoolRefused() | PoolMade() | PoolCopied():
                actions += self.residency.hear(event)
            case _:
                assert_never(event)

    def _join(self, job: Job, other: Job, now_ns: int, actions: list[Action]) -> None:
        """Merge the groups of two jobs; the older group survives."""
        pair = self.groups[job.group_key], self.groups[other.group_key]
        if pair[0] is pair[1]:
            return
        survivor, gone = sorted(pair, key=lambda group: group.number)
        for one, with_whom in ((survivor, gone), (gone, survivor)):
            one.tell(
                now_ns, f"joined with {with_whom.title}: they share memory or events of the gpu"
            )
        self._ties.join(survivor, gone)
        del self.groups[gone.key]
        actions.append(ChargeGroup(process_ids=tuple(gone.processes), group=survivor.number))
        _refresh(survivor, now_ns, self.options)
        self._bind(survivor, now_ns)
        self._structure_changed = True

    def _register(self, event: JobRegistered, actions: list[Action]) -> None:
        job = self._add_job(event.job_id, event.uid, event.spec, event.now_ns)
        job.registered, job.meant_gpus = True, event.meant_gpus
        if event.told:
            job.tell(event.now_ns, event.told)
        actions.append(_announce(job, "registered", event.now_ns))

    def _change_job(
        self,
        event: JobRegistered
        | JobExited
        | JobTurnedAway
        | JobUpdated
        | JobPaused
        | JobResumed
        | JobCancelled,
        actions: list[Action],
    ) -> None:
        if isinstance(event, JobRegistered):
            self._register(event, actions)
            return
        if event.job_id not in self.jobs:
            raise UnknownJobError(f"no living job is named 'j-{event.job_id:x}'")
        job = self.jobs[event.job_id]
        self._structure_changed = True
        match event:
            case JobExited():
                job.registered = False
                self._end_if_over(job, event.now_ns, actions)
            case JobTurnedAway():
                self._turn_away(job, event, actions)
            case JobUpdated():
                old, job.spec = job.spec, replace(event.spec, group=job.spec.group)
                self.memory.note_change()
                self._ask_for_groups(job, old)
                if old.job_class is not job.spec.job_class:
                    self.rings.forget_all_credit(self.groups[job.group_key])
                self._minima.note(job, event.now_ns)
                self._keep_minima(event.now_ns)
                job.tell(event.now_ns, f"set: {changes_of(old, job.spec)}")
                actions.append(_announce(job, "updated", event.now_ns))
            case JobPaused() | JobResumed() | JobCancelled():
                self._steer(job, event, actions)
            case _:
                assert_never(event)

    def _turn_away(self, job: Job, event: JobTurnedAway, actions: list[Action]) -> None:
        job.turned_away = f"a process of it was refused, and runs unshared: {event.why}"
        job.tell(event.now_ns, job.turned_away)
        if job.state is JobState.STARTING:
            self._move(job, Stimulus.TURNED_AWAY, event.now_ns, actions)

    def _steer(
        self, job: Job, event: JobPaused | JobResumed | JobCancelled, actions: list[Action]
    ) -> None:
        match event:
            case JobPaused():
                if self.notices.begin(event, job, self.groups[job.group_key]):
                    actions.append(_announce(job, "pausing", event.now_ns))
                else:
                    self._pause(job, event.now_ns, actions)
            case JobResumed():
                self._resume(job, event.now_ns, actions)
            case JobCancelled():
                signalled = self.cancels.begin(event, job)
                actions += [signalled, _announce(job, "cancelled", event.now_ns)]
                if signalled.signal != KILL:  # a handler of the signal may need the GPU
                    self._resume(job, event.now_ns, actions)
            case _:
                assert_never(event)

    def _pause(self, job: Job, now_ns: int, actions: list[Action]) -> None:
        self.notices.end(job)
        job.pause(now_ns)
        self._move(job, Stimulus.PAUSED, now_ns, actions)

    def _pause_told(self, now_ns: int) -> list[Action]:
        """Send due notices, and pause jobs whose programs are ready or out of time."""
        if self.notices.wake_at_ns is None:
            return []

        def group_of(job: Job) -> Group:
            return self.groups[job.group_key]

        actions: list[Action] = [*self.notices.tell(self.jobs, group_of)]
        while over := self.notices.over(self.jobs, group_of, now_ns):
            self._structure_changed = True
            for job in over:
                if job.notice and (late := waited_for(group_of(job), job.notice)):
                    job.unready = late
                    who = counted(late, "program")
                    job.tell(now_ns, f"{who} did not get ready within the grace period")
                self._pause(job, now_ns, actions)
        return actions

    def _resume(self, job: Job, now_ns: int, actions: list[Action]) -> None:
        if job.notice is not None:
            self.notices.end(job)
            job.tell(now_ns, "is no longer to be paused")
            actions.append(_announce(job, job.state.name.lower(), now_ns))
        if job.paused:
            job.resume(now_ns)
            stimulus = Stimulus.RESUMED if job.processes else Stimulus.RESUMED_EMPTY
            self._move(job, stimulus, now_ns, actions)
            # Its threads may have waited all along, but a paused job saves up no credit either.
            self.rings.forget_old_credit(self.groups[job.group_key], self.options)
        job.pause_number = job.unready = 0
        actions += self.notices.withdraw(self.groups[job.group_key])

    def _ask_for_groups(self, job: Job, old: JobSpec | None = None) -> None:
        if old and (old.sm_count, old.sm_percent) == (job.spec.sm_count, job.spec.sm_percent):
            return
        splits = [self.options.splits[gpu] for gpu in gpus_of(job) & self.options.splits.keys()]
        job.groups_wanted = max((groups_asked(job.spec, split) for split in splits), default=0)

    def _change_rules(self, event: PolicyChanged | PlanFound | CeilingSet) -> None:
        if isinstance(event, PlanFound):
            self._structure_changed |= self.divisions.take(event, self.islands)
            return
        if isinstance(event, CeilingSet):
            self.memory.line.ceilings.put(event.uid, event.ceiling)
            self.memory.note_change()
            self._keep_minima(event.now_ns)
            self._structure_changed = True
            return
        policy = policy_named(event.policy)
        if policy is not self.policy:  # service under the old rules is no debt under the new
            for group in self.groups.values():
                group.virtual_ns = 0.0
        self.policy = policy
        self.options = replace(self.options, policy=event.policy)
        self.rings.begin_anew()
        if not self.policy.by_lanes:
            self.lanes.give_up(self.groups.values())
        self._structure_changed = True

    def _add_job(self, job_id: int, uid: int, spec: JobSpec, now_ns: int) -> Job:
        before = self.finished.pop(job_id, None)
        job = Job(
            job_id=job_id,
            uid=uid,
            arrival=self._arrivals,
            created_ns=now_ns,
            registered=False,
            spec=spec,
        )
        self._arrivals += 1
        job.home = self._ties.home_of(job.group_key)
        self.jobs[job_id] = job
        self._minima.note(job, now_ns)
        group = self.groups.get(job.group_key)
        if group is None:
            self._group_numbers += 1
            group = Group(key=job.group_key, number=self._group_numbers, arrival=job.arrival)
            self.groups[group.key] = group
        group.jobs[job_id] = job
        group.weight = float(self.options.weight(group.job_class))  # until it is seated
        job.tell(now_ns, f"registered as {describe(spec)}")
        self.cancels.come(job, before, now_ns)
        return job

    def _attach(self, event: ProcessAttached, actions: list[Action]) -> None:
        job = self.jobs.get(event.job_id)
        if job is None:
            job = self._add_job(event.job_id, event.uid, event.spec, event.now_ns)
            self.cancels.come_back(job, event.cancel, event.now_ns)
        elif job.spec.memory_percent and job.spec.memory_bytes >= NO_LIMIT:
            job.spec = replace(job.spec, memory_bytes=self._share_of(event, job))
        if job.spec.sm_count and not job.spec.sm_percent:  # the process knows the GPU
            job.spec = replace(job.spec, sm_percent=event.spec.sm_percent)
        process = Process(
            process_id=event.process_id,
            job_id=job.job_id,
            gpu=event.gpu,
            takes_files=event.takes_files,
            gives_back=event.gives_back,
            mps_percent=event.mps_percent,
            came_before_sets=not (event.has_set or self._may_have_sets(event.gpu)),
            usage=Usage(process_id=event.process_id),
        )
        group = self.groups[job.group_key]
        self.processes[event.process_id] = process
        if event.has_set:
            self.sets.take_back(event.process_id)
        job.processes[event.process_id] = process
        self._minima.note(job, event.now_ns)
        group.processes[event.process_id] = process
        group.last_wanted_ns = event.now_ns
        self.residency.watch(process, job)
        self.checkpoints.watch(process, job)
        self._bind(group, event.now_ns)
        split = self.options.splits.get(event.gpu)
        if split and event.gpu not in self.divisions.planned_gpus:
            job.groups_wanted = job.groups_wanted or groups_asked(job.spec, split)
        self._told.come(event.process_id)
        self.memory.note_arrival()
        self._keep_minima(event.now_ns)
        self._warn(job, event.gpu, event.now_ns)
        self._move(job, Stimulus.ATTACHED, event.now_ns, actions)
        actions.append(_announce(job, "attached", event.now_ns))
        actions += self.cancels.join(job, event.process_id)

    def _may_have_sets(self, gpu: int) -> bool:
        return gpu in self.options.splits or gpu in self.options.may_have_sets

    def _warn(self, job: Job, gpu: int, now_ns: int) -> None:
        """Tell the job what it cannot have on this GPU."""
        mode = self.options.mode_of([gpu])
        for warning in (
            unfit(job.spec, frozenset({gpu}), self.options),
            SUBSTRATES[mode].warning,
            self.options.hindrance(gpu, mode),
        ):
            if warning:
                job.tell(now_ns, warning)

    def _keep_minima(self, now_ns: int) -> None:
        """Promise minimal memory anew after jobs came or went: first come, first promised."""
        capacity_bytes = self.memory.line.capacity_bytes
        self.residency.note_all()
        self.memory.line.reserves.note()
        line, name_of = self.memory.line, self.options.name_of
        kept_free = line.reserves.sizes_bytes
        for job, why_not in self._minima.keep(
            capacity_bytes, line.ceilings, name_of, kept_free=kept_free
        ):
            job.tell(now_ns, f"its minimum of memory is not promised: {why_not}")

    def _let_lapse(self, now_ns: int) -> None:
        lapsed = self._minima.lapse(now_ns)
        for job in lapsed:
            job.tell(now_ns, "its minimum of memory is not promised until it has a process")
        if lapsed:
            self._keep_minima(now_ns)

    def _forget(self, process: Process, now_ns: int) -> None:
        """Drop a process that is gone from everything that decides about it."""
        self.residency.forget(process)
        self.memory.line.reserves.note()
        self.checkpoints.forget(process)
        self.shifts.forget(process.process_id)
        self.phases.forget(process.process_id)
        self._told.gone(process.process_id)
        self.notices.forget(process.process_id)
        self.memory.forget(process, now_ns, self.options)
        self.lanes.forget(process, now_ns, self.options)
        self.sets.forget(process.process_id)

    def _share_of(self, event: ProcessAttached, job: Job) -> int:
        """The job's share in bytes, as its process states it, but at most the GPU's true share."""
        capacity_bytes = self.memory.line.capacity_bytes.get(event.gpu, NO_LIMIT)
        most_bytes = capacity_bytes * job.spec.memory_percent // 100
        return min(event.spec.memory_bytes, most_bytes)

    def _detach(self, event: ProcessExited, actions: list[Action]) -> None:
        process = self.processes.pop(event.process_id)
        job = self.jobs[process.job_id]
        group = self.groups[job.group_key]
        del job.processes[process.process_id], group.processes[process.process_id]
        job.left_ns, job.left_gpus = event.now_ns, process.gpus
        self._forget(process, event.now_ns)
        usage = process.usage
        job.retired_gpu_ns += usage.charged_ns
        job.retired_shared_ns += usage.shared_ns
        job.retired_launches += usage.launches
        job.retired_steps += usage.steps
        job.retired_iterations += usage.steps or usage.iterations
        job.used_gpus |= process.gpus
        job.retired_wait_ns = totals([job.retired_wait_ns, usage.waited_ns(event.now_ns)])
        job.retired_refused_by = totals([job.retired_refused_by, usage.refused_by])
        job.retired_moved_bytes = totals([job.retired_moved_bytes, usage.moved_bytes])
        job.retired_moved_ns = totals([job.retired_moved_ns, usage.moved_ns])
        actions.append(ForgetProcess(process_id=process.process_id))
        self._bind(group, event.now_ns)
        _refresh(group, event.now_ns, self.options)
        if not job.processes:
            job.part, job.turned_away = 0, ""
            self._move(job, Stimulus.LEFT, event.now_ns, actions)
        self._end_if_over(job, event.now_ns, actions)

    def _end_if_over(self, job: Job, now_ns: int, actions: list[Action]) -> None:
        if job.registered or job.processes:
            return
        self._move(job, Stimulus.EXITED, now_ns, actions)
        del self.jobs[job.job_id]
        self._minima.forget(job)
        self.cancels.forget(job)
        self.notices.end(job)
        group = self.groups[job.group_key]
        del group.jobs[job.job_id]
        self._ties.forget_job(job.job_id)
        if not group.jobs:
            self._ties.forget_group(group.key)
            del self.groups[group.key]
        job.ended_ns = now_ns
        finished.keep(self.finished, job)
        self._keep_minima(now_ns)

    def _take_samples(self, event: UsageSampled, actions: list[Action]) -> None:
        jobs: dict[int, Job] = {}
        spent: dict[GroupKey, tuple[int, int]] = {}
        seen = self.checkpoints.seen
        for told in map(seen, event.samples) if self.checkpoints.is_used else event.samples:
            process = self.processes.get(told.process_id)
            if process is None:
                continue  # it left between the sample and now
            job = self.jobs[process.job_id]
            usage = self.memory.line.plausible(process, told)
            old, process.usage = process.usage, usage
            process.count_ends(old, finds=self.options.find_iterations)
            job.note_peak(usage, old)
            if usage.swapped_bytes or process.away_since_ns or usage.refused_by != old.refused_by:
                self._note_memory(process, old, job, event.now_ns)
            self.memory.take(process, old, event.now_ns)
            if old.phase_hash != usage.phase_hash or old.in_set != usage.in_set:
                self._note_change(process, old, job, event.now_ns)
            jobs[job.job_id] = job
            charge_ns = usage.charged_ns - old.charged_ns
            served_ns, charged_ns = spent.get(job.group_key, (0, 0))
            served_ns += max(0, usage.served_ns - old.served_ns)
            spent[job.group_key] = (served_ns, charged_ns + max(0, charge_ns))
            self.energy.charge(job.job_id, process.gpu, charge_ns)
            held_bytes = (old.device_bytes, old.resident_bytes)
            if held_bytes != (usage.device_bytes, usage.resident_bytes):
                self._note_left(job)
        for key, (served_ns, charged_ns) in spent.items():
            self._charge(self.groups[key], served_ns, charged_ns, event.now_ns)
        for job in jobs.values():
            note_rhythm(job, self.options, event.now_ns)
            self._move(job, _stimulus(job), event.now_ns, actions)
            self._note_where_memory_is(job, event.now_ns, actions)

    def _note_left(self, job: Job) -> None:
        """Note that the job's holdings changed, and with them what is left to others."""
        self.memory.line.ceilings.note(job.uid)
        self.memory.line.reserves.note()
        if has_siblings(self.groups[job.group_key]):
            self._left_otherwise.add(job.group_key)

    def _note_change(self, process: Process, old: Usage, job: Job, now_ns: int) -> None:
        """Note a new phase or set: its request durations so far no longer apply."""
        if process.usage.phase_hash != old.phase_hash:
            self.tuning.note_phase(job.job_id)
        if process.usage.in_set != old.in_set:
            job.latency.moved_ns, process.moved = now_ns, process.usage

    def _note_memory(self, process: Process, old: Usage, job: Job, now_ns: int) -> None:
        """Record what people may ask about the process's memory later."""
        if not process.usage.swapped_bytes:
            process.away_since_ns = 0
        elif not process.away_since_ns:
            process.away_since_ns = now_ns
        if process.usage.refused_by != old.refused_by:
            group = self.groups[job.group_key]
            for line in refusals_since(old, process, job, group, self.memory.line):
                job.tell(now_ns, line)

    def _charge(self, group: Group, served_ns: int, charged_ns: int, now_ns: int) -> None:
        wanted, was_busy, steps = group.wants, group.busy, group.steps
        had_short_gaps, wished_until_ns = group.short_gaps, group.critical_until_ns
        group.served_ns += served_ns
        group.charged_ns += charged_ns
        group.virtual_ns += charged_ns / group.weight
        _refresh(group, now_ns, self.options)
        if group.wants and not wanted:
            self.rings.forget_old_credit(group, self.options)
        stepped = group.steps != steps
        if stepped:
            _note_step(group, group.steps - steps, now_ns)
        group.piece.take_quantum(self.options.quantum_ns, group.served_ns, now_ns)
        if group.short_gaps != had_short_gaps:
            self._structure_changed = True  # the windows of others depend on it
        if self._structure_changed:
            return  # every group will be looked at
        self._note(group)
        has_turn = self.rings.holds(group)
        stepped &= group.reopened_steps is not None or has_turn
        wishes_otherwise = has_turn and wished_until_ns != group.critical_until_ns
        if (wanted, was_busy) != (group.wants, group.busy) or stepped or wishes_otherwise:
            self.rings.touch(group)

    def _note(self, group: Group) -> None:
        """Have everything that decides about the group look at it."""
        self.rings.note(group)
        if self.residency.is_used:
            self.residency.note(group)
        if self.policy.by_lanes:
            self.lanes.note(group)

    def _move(self, job: Job, stimulus: Stimulus, now_ns: int, actions: list[Action]) -> None:
        if not advance(job, stimulus):
            return
        if stimulus not in (Stimulus.BUSY, Stimulus.BLOCKED, Stimulus.QUIET):
            job.tell(now_ns, stimulus.value)
        actions.append(_announce(job, job.state.name.lower(), now_ns))

    def _note_where_memory_is(self, job: Job, now_ns: int, actions: list[Action]) -> None:
        if job.state not in (JobState.PAUSED, JobState.SWAPPED):
            return
        away = any(process.usage.swapped_bytes for process in job.processes.values())
        if away or job.state is JobState.SWAPPED:
            stimulus = Stimulus.MOVED_OUT if away else Stimulus.MOVED_BACK
            self._move(job, stimulus, now_ns, actions)

    def _take_observation(
        self,
        event: WorkClassified
        | RequestsServed
        | CurveRecorded
        | ScalingTold
        | MemoryAudited
        | ProcessCheckpointed
        | SubstrateFailed
        | MpsClientsListed
        | FindingBegan
        | FindingEnded,
        actions: list[Action],
    ) -> None:
        if isinstance(event, WorkClassified | RequestsServed | CurveRecorded | ScalingTold):
            self._take_recording(event)
            return
        if isinstance(event, MemoryAudited):
            take_audit(event, self.processes, self.jobs, self.options)
            self.memory.line.reserves.note()
            self.residency.note_all()
            self.lanes.note_memory()
            return
        if isinstance(event, ProcessCheckpointed):
            self.lanes.note_memory()
            self.residency.note_all()
            self.memory.line.reserves.note()
            if (moved := self.checkpoints.take(event)) is not None:
                self._note_where_memory_is(moved, event.now_ns, actions)
            return
        if isinstance(event, SubstrateFailed | MpsClientsListed):
            self._take_news_of_mps(event)
            return
        self._take_finding(event, actions)

    def _take_finding(self, event: FindingBegan | FindingEnded, actions: list[Action]) -> None:
        job = self.jobs.get(event.job_id)
        if job is None:
            return  # it has ended meanwhile
        began = isinstance(event, FindingBegan)
        rule, what = event.finding.rule, event.finding.what
        job.tell(event.now_ns, f"{rule}: {what}" if began else f"{rule}: over")
        actions.append(_announce(job, "finding" if began else "finding-over", event.now_ns, rule))

    def _take_news_of_mps(self, event: SubstrateFailed | MpsClientsListed) -> None:
        if isinstance(event, MpsClientsListed):
            take_clients(event, self.processes, self.jobs)
            return
        tell_of_mps(event, (*self.jobs.values(), *self.finished.values()))

    def _take_recording(
        self, event: WorkClassified | RequestsServed | CurveRecorded | ScalingTold
    ) -> None:
        process = self.processes.get(event.process_id)
        if process is None:
            return  # it has left meanwhile
        job = self.jobs[process.job_id]
        match event:
            case WorkClassified():
                process.mix = event.mix
                self._bind(self.groups[job.group_key], event.now_ns)
            case CurveRecorded():
                process.curve, process.curve_ns = event.curve, event.now_ns
            case RequestsServed():
                self._take_requests(event, job)
            case ScalingTold():
                was_guessed = job.scaling is None and self.divisions.of(job) is not None
                take_scaling(process, event)
                note_rhythm(job, self.options, event.now_ns)
                self._structure_changed |= was_guessed and job.scaling is not None

    def _bind(self, group: Group, now_ns: int) -> None:
        """Set what bounds the group's work from its processes; unknown where they differ."""
        bounds = {p.mix.bound if p.mix else Bound.UNKNOWN for p in group.processes.values()}
        bound = bounds.pop() if len(bounds) == 1 else Bound.UNKNOWN
        if bound is not group.bound:
            group.bound = bound
            group.tell(now_ns, f"what bounds its work: {bound.name.lower()}")
            self._structure_changed = True

    def _take_requests(self, event: RequestsServed, job: Job) -> None:
        """Take in request durations; those of jobs that need not be quick decide nothing."""
        if has_requests(job):
            self.tuning.take(event, job)
            note_rhythm(job, self.options, event.now_ns)
            if event.kind is not job.latency.kind:
                return
            count = len(event.durations_ns)
            self._end_requests(self.groups[job.group_key], count, event.now_ns)
        elif event.kind is RequestKind.MARKED:
            job.served.newest.add(event.durations_ns, event.now_ns)
        else:
            return
        job.served.add(event.durations_ns, event.said_ns, event.now_ns, job.spec.slo_p99_ns)

    def _end_requests(self, group: Group, count: int, now_ns: int) -> None:
        """Count requests as ended pieces of work, which matters where turns go by pieces."""
        group.piece.end(Kind.REQUEST, count, group.served_ns, now_ns)
        if self.policy.by_pieces and self.rings.turns_of(group) and not self._structure_changed:
            self._note(group)
            self.rings.touch(group)

    # Decisions

    def _pace(self, now_ns: int) -> list[Action]:
        """Decide who runs beside others, after releasing groups that the policy no longer holds."""
        pace = self._pace_of_policy
        are_left = self.lanes.is_used and not self.policy.by_lanes
        by_turns = pace in (Pace.FREE, Pace.RATED)
        if by_turns and not (are_left or self.shifts.is_used or self.phases.is_used):
            return []  # the usual case
        actions: list[Action] = []
        if are_left:
            actions += self.lanes.tell(self.processes)
        if pace is Pace.PHASES:
            return [*actions, *self._shift_iterations(now_ns), *self._gate_phases(now_ns)]
        return [*actions, *self._gate_phases(now_ns), *self._shift_iterations(now_ns)]

    @property
    def _pace_of_policy(self) -> Pace:
        """Pace of the policy; FREE where no kernels overlap, so that nobody waits for others."""
        pace = self.policy.pace if self.options.mps_gpus else None
        return pace or Pace.FREE

    def _gate_phases(self, now_ns: int) -> list[Action]:
        groups = self.groups.values() if self._pace_of_policy is Pace.PHASES else ()
        actions = self.phases.decide(groups, self.options, now_ns)
        self._note_kept(self.phases.moved, now_ns)
        return actions

    def _shift_iterations(self, now_ns: int) -> list[Action]:
        groups = self.groups.values() if self._pace_of_policy is Pace.CURVES else ()
        capacity_bytes = self.memory.line.capacity_bytes
        actions = self.shifts.decide(groups, capacity_bytes, self.options, now_ns)
        self._note_kept(self.shifts.moved, now_ns)
        self._structure_changed |= self.shifts.patience_changed
        if self.shifts.has_lent_more:
            self.memory.note_change()
        return actions

    def _note_kept(self, groups: list[Group], now_ns: int) -> None:
        for group in groups:
            _refresh(group, now_ns, self.options)
            if self.rings.turns_of(group) and not self._structure_changed:
                self._note(group)
                self.rings.touch(group)

    def _settle_lanes(self, now_ns: int) -> None:
        if self.policy.by_lanes:
            self._structure_changed |= self.lanes.decide(
                self.groups,
                self.memory.line.capacity_bytes,
                self.options,
                now_ns,
                are_others=self._structure_changed,
                remaining_ns=self._remaining_ns,
            )
            for group in self.lanes.take_come():  # waiting for admission earns no credit
                self.rings.forget_old_credit(group, self.options)

    def _remaining_ns(self, group: Group) -> float:
        """GPU time left, judging by finished jobs of the same names; inf if there are none."""
        names = [job.spec.name for job in group.jobs.values()]
        uid = group.key[0]
        before = {j.spec.name: j.gpu_ns for j in self.finished.values() if j.uid == uid}
        if not all(name and name in before for name in names):
            return float("inf")
        return max(0, sum(before[name] for name in names) - group.charged_ns)

    def _settle(self, now_ns: int, actions: list[Action]) -> None:
        whole = self._structure_changed
        if whole:
            self._seat(now_ns)
        else:
            actions += self._tell_limits()
        verdicts = self._decide(now_ns)
        if not verdicts and not whole:
            return
        actions += self._keep_trials()
        self._structure_changed = False
        if whole:
            actions += self._tell_settings()
        is_changed = whole or any(verdict.exempted for verdict in verdicts)
        actions += self._told.tell_honour(self.rings.turns, self.processes.keys(), whole=is_changed)
        if whole:
            actions += self._told.mend_gates(chain.from_iterable(self.islands.values()))
        else:
            actions += self._told.tell_gates(verdicts)
        for verdict in verdicts:
            self._tell_story(verdict, now_ns)

    def _seat(self, now_ns: int) -> None:
        self.islands = islands_of(self.groups.values())
        self.divisions.seat(self.islands, self.policy, self.options, now_ns)
        self.rings.seat(self.islands, self.groups, self.policy, self.options)
        self._try_to_drain_again(now_ns)
        self.tuning.seat(self.islands, self.options, now_ns)
        for ring, members in self.rings.members.items():
            weigh(members, self.policy, self.options)
            for group in members:
                specs = [job.spec for job in group.jobs.values()]
                group.preemptible = all(map(self.options.may_preempt, specs))
                group.piece.take_quantum(self.options.quantum_ns, group.served_ns, now_ns)
            turns = self.rings.turns[ring]
            turns.foresight.model = self.tuning.model_of(ring[0])
            turns.seat(members, self.policy)

    def _try_to_drain_again(self, now_ns: int) -> None:
        """Let groups that did not drain in time on few SMs try again if they have more now."""
        for group in self.groups.values():
            if group.undrainable and group.set_size > group.undrainable_on:
                group.undrainable, group.drain_failures = False, 0
                group.tell(
                    now_ns, "it has more SMs than when it failed to drain: it takes turns again"
                )

    def _decide(self, now_ns: int) -> list[Verdict]:
        verdicts = self.rings.decide(
            policy=self.policy,
            options=self.options,
            now_ns=now_ns,
            are_all=self._structure_changed,
        )
        if self.residency.is_used:
            for group in chain.from_iterable(verdict.moved for verdict in verdicts):
                self.residency.note(group)
        return verdicts

    def _keep_trials(self) -> Iterator[Action]:
        """Keep what trials on single GPUs taught; across several it fits no one kind of GPU."""
        for (gpus, _), turns in self.rings.turns.items():
            learnt = turns.foresight.take_learnt()
            if learnt and len(gpus) == 1:
                yield KeepTrials(gpu=min(gpus), trials=learnt)

    def _tell_limits(self) -> Iterator[Action]:
        """Tell processes what others of their user, group or job leave them, if that changed."""
        ceilings = self.memory.line.ceilings
        changed, self._left_otherwise = self._left_otherwise, set()
        if uids := ceilings.take_changed():
            ceilings.look()
            changed |= {job.group_key for job in self.jobs.values() if job.uid in uids}
        if changed:
            groups = (group for key, group in self.groups.items() if key in changed)
            yield from self._told.tell_limits(groups, self.memory.line)

    def _tell_settings(self) -> Iterator[Action]:
        ceilings = self.memory.line.ceilings
        self._left_otherwise.clear()  # all are told below
        ceilings.take_changed()
        ceilings.look()
        rings, line = self.rings.members.values(), self.memory.line
        yield from self._told.tell_settings(rings, line, self.policy, self.options)

    def _tell_story(self, verdict: Verdict, now_ns: int) -> None:
        for group in verdict.held:
            holder = self._holder_beside(group)
            who = f"{holder.title} has the gpu" if holder else "the gpu is being handed over"
            group.tell(now_ns, f"held: {who}")
        for group in verdict.released:
            group.tell(now_ns, "its gate opened")
        for group in verdict.exempted:
            group.tell(
                now_ns,
                f"undrainable: work did not drain within {self.options.drain_ns // 1_000_000} ms "
                f"in {self.options.drain_tries} tries; from now on only its window is limited",
            )

    def _holder_beside(self, group: Group) -> Group | None:
        found = self.island_of(group)
        key = found[1].holder if found else None
        return None if key is None or key == group.key else self.groups.get(key)

    def _tell_wake(self, now_ns: int, actions: list[Action]) -> None:
        others = [part.wake_at_ns for part in self._wakers]
        due_ns = [at_ns for at_ns in (*self.rings.wakes_ns, *others) if at_ns is not None]
        wake_at_ns = min(due_ns, default=None)
        passed = self._wake_at_ns is not None and now_ns >= self._wake_at_ns
        if wake_at_ns is not None and (passed or wake_at_ns != self._wake_at_ns):
            actions.append(WakeAt(at_ns=max(wake_at_ns, now_ns)))
        self._wake_at_ns = wake_at_ns


def _announce(job: Job, kind: str, now_ns: int, rule: str = "") -> AnnounceJob:
    """Announce a change to watchers, and keep it for those who ask later."""
    job.events.tell(now_ns, f"{kind} {rule}" if rule else kind)
    return AnnounceJob(job_id=job.job_id, kind=kind, rule=rule)


def _refresh(group: Group, now_ns: int, options: Options) -> None:
    """Update the group's facts from its processes."""
    wanted = group.wants
    busy = asks = calls = False
    steps, gap_ns, critical_until_ns = 0, 0, 0
    for process in group.processes.values():
        usage = process.usage
        critical_until_ns = max(critical_until_ns, usage.critical_until_ns)
        busy = busy or usage.busy
        asks = asks or usage.wants_gpu
        calls = calls or usage.waits_for_memory
        steps += process.ends
        if usage.gap_p50_ns and (not gap_ns or usage.gap_p50_ns < gap_ns):
            gap_ns = usage.gap_p50_ns
    group.busy, group.steps, group.gap_p50_ns = busy, steps, gap_ns
    group.critical_until_ns = critical_until_ns
    if not busy:
        group.backlog.has_ended()
    group.calls = asks or calls or group.needs_memory
    asks = asks and not group.is_kept and not group.misfit_bytes
    group.wants = busy or asks or group.needs_memory
    group.short_gaps = has_short_gaps(group, options)
    if group.wants or wanted:
        group.last_wanted_ns = now_ns
    if group.wants and not wanted:
        group.piece.begin(group.served_ns, now_ns)
    if not group.processes:
        group.open, group.drained, group.hold_since_ns = True, True, None
        group.reopened_steps, group.is_kept = None, False


def _note_step(group: Group, count: int, now_ns: int) -> None:
    """Note that `count` iterations ended, and their cost in the group's own GPU time."""
    ended = max(1, count)  # a process that left is no longer in the count
    group.piece.end(Kind.ITERATION, ended, group.served_ns, now_ns)
    known = group.step_served_ns > 0
    since_ns = group.served_ns - group.step_served_ns
    group.step_cost_ns = since_ns // ended if known else 0
    group.step_served_ns = group.served_ns


def _stimulus(job: Job) -> Stimulus:
    found = Stimulus.QUIET
    for process in job.processes.values():
        usage = process.usage
        if usage.busy:
            return Stimulus.BUSY
        if usage.waiting_threads or usage.memory_wait:
            found = Stimulus.BLOCKED
    return found
