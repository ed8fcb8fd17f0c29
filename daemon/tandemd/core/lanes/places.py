"""Lanes for the scheduler's groups: who may be on a GPU now, and whose iteration it is.

Rules
1. A group asks for admission when its first process is on a GPU: with its promise, or with only its
   limit. It leaves with its last process.
2. A group that is not admitted, or whose lane belongs to another now, is *barred*: its gate is
   closed to launches and to allocations.
3. An iteration ends when all processes of the group that hold memory have marked its end: each
   stops there by itself. The lane passes on when nothing of the group is left on the GPU. If either
   takes longer than `drain_ns`, the processes that stand continue to their next mark, because the
   rest may wait for what they do there. Nobody is stopped if one process that holds memory marks
   nothing while another does.
4. The need of a group is what it states, at first or later, or what two iterations that it marked
   show. An increase is accepted only if there is room for it. If a group marks no iterations but
   some are found, its turn never ends, and the most it has held counts as held for good.

Groups on several GPUs, or on GPUs of unknown size, are left alone.

A decision looks only at groups whose outcome may have changed: those with news, and those whose
turn is about to end. After any change to the lanes, all are looked at once more, since who may come
or run, and with how much, depends on the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tandemd.core.errors import NeverFitsError
from tandemd.core.events import Action, SetLane, SetStepLimit
from tandemd.core.lanes.lanes import Lanes, Need
from tandemd.core.memory.audit import unseen_bytes
from tandemd.core.memory.line import held_bytes
from tandemd.core.memory.memories import equal_parts
from tandemd.core.model import NO_LIMIT, Group, GroupKey, Job, JobSpec, Options, Process, Usage
from tandemd.core.words import size_of

ENOUGH_MARKS = 2
ENOUGH_FOUND = 3
SLACK = 16  # divisor: the part of a measured peak that is added to it
GRANULE_BYTES = 2 << 20  # unit in which a device allocates memory
LOOK_AGAIN_NS = 1_000_000


@dataclass(slots=True, kw_only=True)
class Standing:
    """A group that asked for admission."""

    group: Group
    gpu: int
    number: int  # in order of asking
    lanes: Lanes
    is_known: bool  # its need, stated or measured
    promise: Need | None  # its newest accepted statement
    # By process: the step at which its turn ends.
    steps: dict[int, int] = field(default_factory=dict)
    charged_ns: int  # GPU time already reported to its lane
    split_ns: int | None = None  # since when some of its processes stand and others do not
    ended_ns: int | None = None  # when its iteration was seen to end; it must still drain
    has_come: bool = False  # it was admitted

    @property
    def is_ending(self) -> bool:
        """Tell whether time alone will change its state."""
        return self.split_ns is not None or self.ended_ns is not None

    @property
    def turn(self) -> tuple[int | None, int | None, dict[int, int]]:
        """All that a look may change and the next one depends on, except for its lane."""
        return self.split_ns, self.ended_ns, self.steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """Memory of a process that is gone; the driver may take a while to release it."""

    gpu: int
    size_bytes: int
    until_ns: int


class LanePlaces:
    """The lanes of all GPUs. Belongs to the scheduler."""

    def __init__(self) -> None:
        self.wake_at_ns: int | None = None
        self._lanes: dict[int, Lanes] = {}  # by GPU
        self._standing: dict[GroupKey, Standing] = {}
        self._told: dict[int, int] = {}  # by process: where it stops; 0 = nowhere
        self._leaving: list[Leaving] = []
        self._capacity_bytes: dict[int, int] = {}  # of GPUs, as their lanes use it
        self._numbers = 0
        self._noted: dict[GroupKey, Standing] = {}  # groups to be looked at
        self._is_news = True  # all groups must be looked at
        self._is_untold = False
        self._come_in: list[Group] = []  # admitted groups that nobody has taken yet

    @property
    def is_used(self) -> bool:
        """Tell whether any process was told something."""
        return bool(self._told)

    def decide(
        self,
        groups: Mapping[GroupKey, Group],
        capacity_bytes: Mapping[int, int],
        options: Options,
        now_ns: int,
        *,
        are_others: bool,
        remaining_ns: Callable[[Group], float],
    ) -> bool:
        """Admit, bar and unbar groups; return whether any of that changed.

        `are_others`: groups may have come, gone or moved since the last call, or `options` changed.
        """
        before = self._changes
        are_others |= capacity_bytes != self._capacity_bytes
        leaving = [gone for gone in self._leaving if now_ns < gone.until_ns]
        whole = are_others or self._is_news or len(leaving) < len(self._leaving)
        self._leaving = leaving
        if are_others:  # a MIG instance may now share its memory with another
            self._capacity_bytes = dict(capacity_bytes)
            parts_bytes = equal_parts(capacity_bytes)
            for gpu in self._lanes.keys() & parts_bytes.keys():
                self._lanes[gpu].capacity_bytes = parts_bytes[gpu]
        if whole:
            self._reserve(groups.values(), options)
        if are_others:
            self._admit(groups, parts_bytes, options, remaining_ns)
        looked, turns = [], []
        for standing in self._to_look_at(whole=whole):
            looked.append(standing)
            turns.append(standing.turn)
            self._progress(standing, now_ns, options)
        self._is_news = self._changes != before
        self.wake_at_ns = self._next_look_ns(looked, options, now_ns)
        settled = self._standing.values() if self._is_news else looked
        are_beside = {gpu: options.overlaps([gpu]) for gpu in self._lanes}
        changes = [_settle(one, is_beside=are_beside[one.gpu]) for one in settled]
        self._come_in += [one.group for one in settled if _has_just_come(one)]
        moved = [one for one, turn in zip(looked, turns, strict=True) if one.turn != turn]
        self._is_untold |= whole or self._is_news or bool(moved)
        ending = [one for one in looked if one.is_ending]
        self._noted = {one.group.key: one for one in (*moved, *ending)}
        return any(changes)

    def take_come(self) -> list[Group]:
        """Return the groups admitted since the last call."""
        come, self._come_in = self._come_in, []
        return come

    def note(self, group: Group) -> None:
        """Note that a fact of the group changed; `decide` will look at it."""
        if (standing := self._standing.get(group.key)) is not None:
            self._noted[group.key] = standing

    def note_memory(self) -> None:
        """Note that the driver's account of processes' memory changed."""
        self._is_news = True

    @property
    def _changes(self) -> int:
        return sum(lanes.changes for lanes in self._lanes.values())

    def _to_look_at(self, *, whole: bool) -> Iterator[Standing]:
        """All groups, or the noted ones, and every group after the first that changes the lanes."""
        after = 0
        if not whole:
            before = self._changes
            for standing in sorted(self._noted.values(), key=lambda one: one.number):
                yield standing
                if self._changes != before:
                    after = standing.number
                    break
            else:
                return
        yield from (one for one in self._standing.values() if one.number > after)

    def _next_look_ns(self, looked: list[Standing], options: Options, now_ns: int) -> int | None:
        splits_ns = [standing.split_ns for standing in looked]
        looks_ns = [gone.until_ns for gone in self._leaving]
        looks_ns += [split_ns + options.drain_ns for split_ns in splits_ns if split_ns is not None]
        looks_ns += [now_ns + LOOK_AGAIN_NS for one in looked if one.ended_ns is not None]
        if self._is_news:  # all must be looked at, even if nothing else happens
            looks_ns.append(now_ns + LOOK_AGAIN_NS)
        return min(looks_ns, default=None)

    def give_up(self, groups: Iterable[Group]) -> None:
        """Unbar everybody: another policy decides now."""
        self._lanes.clear()
        self._standing.clear()
        self._noted.clear()
        self._is_news = self._is_untold = True
        self.wake_at_ns = None
        for group in groups:
            group.barred, group.memory_limit_bytes, group.is_beside = False, NO_LIMIT, False

    def forget(self, process: Process, now_ns: int, options: Options) -> None:
        """Note that a process is gone; its memory may take a while to be released."""
        size_bytes = held_bytes(process)
        if process.process_id in self._told and size_bytes:
            until_ns = now_ns + options.memory_grace_ns
            gone = Leaving(gpu=process.gpu, size_bytes=size_bytes, until_ns=until_ns)
            self._leaving.append(gone)

    def of(self, group: Group) -> Standing | None:
        """The standing of a group; None: it is left alone."""
        return self._standing.get(group.key)

    def line_before(
        self, spec: JobSpec, key: GroupKey, capacity_bytes: Mapping[int, int], options: Options
    ) -> str | None:
        """Why a job that is about to come would stand in line; None: it would not.

        One of these GPUs must have room now: which one the job will take, and who else comes before
        it does, is not known.
        """
        standing = self._standing.get(key)
        if standing is not None:
            return _line_of_group(standing, spec)
        need = _sum([spec])
        for gpu, size_bytes in capacity_bytes.items():
            fresh = Lanes(capacity_bytes=size_bytes, order=options.lane_order)
            if self._lanes.get(gpu, fresh).has_room(need, spec.memory_bytes):
                return None
        if not capacity_bytes:
            return None
        return f"it would stand in line: no gpu has room for {_told(need)} now"

    def tell(self, processes: Mapping[int, Process]) -> Iterable[Action]:
        """Tell lanes and step limits after the gates: a stopped process finds its gate closed."""
        is_untold, self._is_untold = self._is_untold, False
        return self._tell(processes) if is_untold else ()

    def _tell(self, processes: Mapping[int, Process]) -> Iterator[Action]:
        wanted = {
            process_id: standing.steps.get(process_id, 0)
            for standing in self._standing.values()
            for process_id in standing.group.processes
        }
        told, self._told = self._told, wanted
        for process_id, steps in wanted.items():
            if process_id not in told:
                yield SetLane(process_id=process_id, holds=True)
            if steps != told.get(process_id, 0):
                yield SetStepLimit(process_id=process_id, steps=steps)
        for process_id in told.keys() & processes.keys() - wanted.keys():
            yield SetLane(process_id=process_id, holds=False)
            if told[process_id]:
                yield SetStepLimit(process_id=process_id, steps=0)

    def _admit(
        self,
        groups: Mapping[GroupKey, Group],
        capacity_bytes: Mapping[int, int],
        options: Options,
        remaining_ns: Callable[[Group], float],
    ) -> None:
        """Let groups on one GPU of known size ask, and drop groups that no longer are."""
        for key in list(self._standing):
            group = groups.get(key)
            if group is None or group.gpus != {self._standing[key].gpu}:
                self._leave(key)
        for group in groups.values():
            if group.key not in self._standing and len(gpus := group.gpus) == 1:
                (gpu,) = gpus
                if gpu in capacity_bytes:
                    self._come(group, gpu, capacity_bytes[gpu], options, remaining_ns(group))

    def _come(
        self,
        group: Group,
        gpu: int,
        capacity_bytes: int,
        options: Options,
        remaining_ns: float,
    ) -> None:
        lanes = self._lanes.get(gpu)
        if lanes is None:
            lanes = Lanes(capacity_bytes=capacity_bytes, order=options.lane_order)
            self._lanes[gpu] = lanes
        need, most_bytes = _promised(group), _limit_bytes(group)
        served_ns = group.charged_ns
        try:
            lanes.request(group.key, need, remaining_ns=remaining_ns, served_ns=served_ns)
        except NeverFitsError:  # nobody could refuse it: it came unannounced
            need = None
        if need is None and group.key not in lanes:
            lanes.request(
                group.key,
                None,
                most_bytes=most_bytes,
                remaining_ns=remaining_ns,
                served_ns=served_ns,
            )
        self._numbers += 1
        self._standing[group.key] = Standing(
            group=group,
            gpu=gpu,
            number=self._numbers,
            lanes=lanes,
            is_known=need is not None,
            promise=need,
            charged_ns=served_ns,
        )

    def _leave(self, key: GroupKey) -> None:
        standing = self._standing.pop(key)
        standing.lanes.leave(key)
        group = standing.group
        group.barred, group.memory_limit_bytes, group.is_beside = False, NO_LIMIT, False

    def _reserve(self, groups: Iterable[Group], options: Options) -> None:
        """Reserve contexts and code by the driver's count; uncounted processes as the largest."""
        beyond_bytes: dict[int, list[int | None]] = {}
        for group in groups:
            for process in group.processes.values():
                beyond_bytes.setdefault(process.gpu, []).append(unseen_bytes(process))
        for gpu, lanes in self._lanes.items():
            known = [size for size in beyond_bytes.get(gpu, []) if size is not None]
            unknown = len(beyond_bytes.get(gpu, [])) - len(known)
            leaving = [gone.size_bytes for gone in self._leaving if gone.gpu == gpu]
            lanes.order = options.lane_order
            lanes.reserved_bytes = sum(known + leaving) + unknown * max(known, default=0)
            lanes.look()

    def _progress(self, standing: Standing, now_ns: int, options: Options) -> None:
        group, lanes = standing.group, standing.lanes
        _take_promise(standing)
        if not lanes.is_running(group.key):
            if lanes.is_admitted(group.key) and group.wants and not lanes.is_wanting(group.key):
                lanes.want(group.key)
            return
        if not lanes.takes_turns(group.key):  # otherwise at the end of its iteration
            _charge(standing)
        if standing.ended_ns is not None:
            _drain(standing, now_ns - standing.ended_ns, options)
        # Barred: it has only just begun.
        elif not group.barred and _has_ended(standing, now_ns, options):
            standing.ended_ns = now_ns
        elif not standing.is_known and not lanes.takes_turns(group.key):
            _learn(standing)
        elif not standing.is_known:
            _learn_from_found(standing)


def _take_promise(standing: Standing, *, at_end: bool = False) -> None:
    """Take a new promise: more at once, less once nobody depends on what the group holds."""
    lanes, key = standing.lanes, standing.group.key
    need = _promised(standing.group)
    if need is None or need == standing.promise or need.peak_bytes > lanes.capacity_bytes:
        return
    known = lanes.need_of(key)
    grows = known is not None and need.covers(known)
    shrinks = known is not None and known.covers(need)
    held_bytes = sum(usage.device_bytes for usage in _usages(standing.group))
    if not shrinks and not _has_room(standing, need, held_bytes):
        return
    rests = at_end or not lanes.is_running(key)
    fits = need.persistent_bytes if rests else need.peak_bytes
    if held_bytes <= fits and (rests or grows or not lanes.takes_turns(key)):
        standing.promise, standing.is_known = need, True
        lanes.learn(key, need)


def _has_room(standing: Standing, need: Need, held_bytes: int) -> bool:
    """Tell whether there is room for a need nobody checked, as when a job joined the group.

    What it holds already counts in any case.
    """
    lanes, key = standing.lanes, standing.group.key
    if not lanes.is_admitted(key) or held_bytes > lanes.limit_bytes(key):
        return True
    return lanes.could_grow(key, need)


def _drain(standing: Standing, stood_ns: int, options: Options) -> None:
    """Pass the lane on if the ended iteration has drained; give up after `drain_ns`."""
    if stood_ns > 0 and not standing.group.busy:
        _pass_on(standing)
    elif stood_ns >= options.drain_ns:
        standing.ended_ns = None  # what is left may depend on work it has yet to submit


def _pass_on(standing: Standing) -> None:
    """End the iteration; nothing of it is left on the GPU."""
    group, lanes = standing.group, standing.lanes
    standing.ended_ns = None
    _take_promise(standing, at_end=True)
    if not standing.is_known:
        _learn(standing)
    elif need := lanes.need_of(group.key):
        kept_bytes = sum(usage.device_bytes for usage in _usages(group))
        if kept_bytes > need.persistent_bytes:
            rest_bytes = max(0, need.peak_bytes - kept_bytes)
            lanes.learn(group.key, Need(persistent_bytes=kept_bytes, ephemeral_bytes=rest_bytes))
    _charge(standing)
    lanes.end(group.key)


def _charge(standing: Standing) -> None:
    """Report GPU time to the lane, so that whoever joins finds all earlier service."""
    group = standing.group
    standing.lanes.charge(group.key, group.charged_ns - standing.charged_ns)
    standing.charged_ns = group.charged_ns


def _has_ended(standing: Standing, now_ns: int, options: Options) -> bool:
    """Tell whether all processes that hold memory stand; those that stand too long are let on."""
    usages = _usages(standing.group)
    stopped = [usage for usage in usages if _stands(usage, standing)]
    others = [usage for usage in usages if usage.device_bytes and not _stands(usage, standing)]
    if not stopped or not others:
        standing.split_ns = None
    elif standing.split_ns is None:
        standing.split_ns = now_ns
    elif now_ns - standing.split_ns >= options.drain_ns:  # the others may wait for them
        let_on = {usage.process_id: usage.steps + 1 for usage in stopped}
        standing.steps = standing.steps | let_on
        standing.split_ns = None
    return bool(stopped) and not others


def _stands(usage: Usage, standing: Standing) -> bool:
    """Tell whether it stopped at the end of its turn; False until `_settle` has set that."""
    limit = standing.steps.get(usage.process_id, 0)
    return bool(limit) and usage.stopped >= limit


def _limit_turn(standing: Standing, *, is_new: bool) -> None:
    """Set where each process stops: at the end of its next iteration, if others wait for that."""
    usages = _usages(standing.group)
    if not standing.lanes.takes_turns(standing.group.key) or _marks_in_part(usages):
        standing.steps = {}
        return
    known = {} if is_new else standing.steps
    standing.steps = {
        usage.process_id: known.get(usage.process_id, usage.steps + 1) for usage in usages
    }


def _marks_in_part(usages: list[Usage]) -> bool:
    """Tell whether one marks and another that holds memory does not, beyond a mere head start."""
    marks = max((usage.steps for usage in usages), default=0) >= ENOUGH_MARKS
    return marks and any(usage.device_bytes and not usage.steps for usage in usages)


def _learn(standing: Standing) -> None:
    """Learn the need from iterations that it marked."""
    holders = [usage for usage in _usages(standing.group) if usage.peak_bytes]
    if not holders or min(usage.steps for usage in holders) < ENOUGH_MARKS:
        _learn_from_found(standing)
        return
    persistent_bytes = sum(usage.iteration_end_bytes for usage in holders)
    peak_bytes = sum(usage.iteration_peak_bytes for usage in holders)
    _tell_need(standing, persistent_bytes, max(0, peak_bytes - persistent_bytes))


def _learn_from_found(standing: Standing) -> None:
    """Learn the need from found iterations, whose ends are not known to the byte."""
    holders = [usage for usage in _usages(standing.group) if usage.peak_bytes]
    if holders and all(u.steps == 0 and u.iterations >= ENOUGH_FOUND for u in holders):
        _tell_need(standing, sum(usage.peak_bytes for usage in holders), 0)


def _tell_need(standing: Standing, persistent_bytes: int, ephemeral_bytes: int) -> None:
    """Set the need, at most what it was admitted with: that is still kept for it."""
    most_bytes = standing.lanes.limit_bytes(standing.group.key)
    slack_bytes = _whole(-(-(persistent_bytes + ephemeral_bytes) // SLACK))
    if ephemeral_bytes:
        ephemeral_bytes += slack_bytes
    else:
        persistent_bytes += slack_bytes
    persistent_bytes = min(persistent_bytes, most_bytes)
    need = Need(
        persistent_bytes=persistent_bytes,
        ephemeral_bytes=min(ephemeral_bytes, most_bytes - persistent_bytes),
    )
    standing.is_known = True
    standing.lanes.learn(standing.group.key, need)


def _settle(standing: Standing, *, is_beside: bool) -> bool:
    """Record the decision in the group; return whether it changed."""
    group, lanes = standing.group, standing.lanes
    before = (group.barred, group.memory_limit_bytes, group.is_beside)
    runs = lanes.is_running(group.key) and standing.ended_ns is None
    if runs:
        _limit_turn(standing, is_new=group.barred)
    group.barred = not runs
    group.memory_limit_bytes = _limit_of(standing)
    group.is_beside = is_beside
    return before != (group.barred, group.memory_limit_bytes, group.is_beside)


def _has_just_come(standing: Standing) -> bool:
    had_come = standing.has_come
    standing.has_come = standing.lanes.is_admitted(standing.group.key)
    return standing.has_come and not had_come


def _limit_of(standing: Standing) -> int:
    """What it may hold; in line, what it promised, since programs first ask how much there is."""
    lanes, key = standing.lanes, standing.group.key
    if lanes.is_admitted(key):
        return lanes.limit_bytes(key)
    need = lanes.need_of(key)
    return need.peak_bytes if need else NO_LIMIT


def growth_objection(standing: Standing | None, job: Job, spec: JobSpec) -> str | None:
    """Why a member's job cannot be promised what `spec` says; None if it can, or is no member's."""
    if standing is None:
        return None
    specs = [spec if one is job else one.spec for one in standing.group.jobs.values()]
    need, lanes, key = _sum(specs), standing.lanes, standing.group.key
    if need is None or need == standing.promise:
        return None
    if not lanes.is_admitted(key):
        return objection(specs, {standing.gpu: lanes.capacity_bytes})
    if lanes.could_grow(key, need):
        return None
    return (
        f"it may use {size_of(need.peak_bytes)}, for which there is no room beside the jobs on its "
        "gpu; try again when one of them has left"
    )


def _line_of_group(standing: Standing, spec: JobSpec) -> str | None:
    """Why a job that joins a group would stand in line; None: it would not."""
    lanes, key = standing.lanes, standing.group.key
    if not lanes.is_admitted(key):
        return f"it would stand in line with {standing.group.title}"
    need = _sum([*(job.spec for job in standing.group.jobs.values()), spec])
    if need is None or lanes.could_grow(key, need):
        return None
    return f"it would stand in line: there is no room for {_told(need)} where its group is"


def _told(need: Need | None) -> str:
    if need is None:
        return "a job that promises nothing"
    return f"{size_of(need.persistent_bytes)} for good and {size_of(need.ephemeral_bytes)} besides"


def objection(specs: Iterable[JobSpec], capacity_bytes: Mapping[int, int]) -> str | None:
    """Why the joint promise of jobs can never be kept; None if it can."""
    promised = sum(spec.persistent_bytes + spec.ephemeral_bytes for spec in specs)
    most_bytes = max(capacity_bytes.values(), default=promised)
    if promised <= most_bytes:
        return None
    return (
        f"it may use {size_of(promised)}, {size_of(promised - most_bytes)} more than the largest "
        "gpu has; "
        "lower --persistent or --ephemeral, or choose a larger gpu"
    )


def objection_for_user(spec: JobSpec, most_bytes: Mapping[int, int], key: str) -> str | None:
    """Why a promise exceeds what all jobs of its user may have; `key`: the setting that says so."""
    promised = spec.persistent_bytes + spec.ephemeral_bytes
    most = max(most_bytes.values(), default=promised)
    if promised <= most:
        return None
    return (
        f"it may use {size_of(promised)}, but all jobs of its user only {size_of(most)} of a gpu "
        f"({key}); lower --persistent or --ephemeral"
    )


def _promised(group: Group) -> Need | None:
    return _sum([job.spec for job in group.jobs.values()])


def _sum(specs: list[JobSpec]) -> Need | None:
    """Sum of their promises; None: one of them promises nothing."""
    if not all(spec.persistent_bytes or spec.ephemeral_bytes for spec in specs):
        return None
    return Need(
        persistent_bytes=sum(spec.persistent_bytes for spec in specs),
        ephemeral_bytes=sum(spec.ephemeral_bytes for spec in specs),
    )


def _limit_bytes(group: Group) -> int:
    return min(NO_LIMIT, sum(job.spec.memory_bytes for job in group.jobs.values()))


def _usages(group: Group) -> list[Usage]:
    return [process.usage for process in group.processes.values()]


def _whole(size_bytes: int) -> int:
    return -(-size_bytes // GRANULE_BYTES) * GRANULE_BYTES
