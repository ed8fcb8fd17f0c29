"""Decides whose memory is on the GPU: moves out that of paused jobs, and swaps between turns.

Only the memory of jobs that allow it (`swappable`) moves, and only while nothing of its group is on
the GPU (suspend and resume as in Gandiva, Xiao et al., OSDI 2018). Host memory is reserved before
anything moves (homes.py). The minimum that a job was promised never moves.

When what the groups hold and request does not fit together (the island is *crowded*), memory
follows the turn. Before a turn is given, `review` finds out who can use one and what a change of
turns costs; `decide` then moves memory to whoever has the turn (placement.py). The room of a
crowded GPU is computed from what processes hold. Where the driver refuses an allocation all the
same, the real room is smaller, and the difference is learned (rooms.py).

An island is looked at only when something about it has changed (assessments.py); until then the
previous findings stand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain

from tandemd.core.events import MoveMemory, OfferFile, PoolCopied, PoolMade, PoolRefused
from tandemd.core.islands import Island
from tandemd.core.memory.assessments import Assessment, Assessments, earliest, is_due
from tandemd.core.memory.crowds import Crowd
from tandemd.core.memory.homes import UNIT, Home, HomeAction, in_units
from tandemd.core.memory.host_room import HostRoom, is_worth_it
from tandemd.core.memory.lacks import Lack, lacks_bytes, least_bytes
from tandemd.core.memory.line import MemoryLine, held_bytes
from tandemd.core.memory.link_rate import ENOUGH, link_bytes_s
from tandemd.core.memory.memories import memory_of, sharing
from tandemd.core.memory.placement import Claim, Rank, plan, stall_bytes
from tandemd.core.memory.releases import is_released
from tandemd.core.memory.rooms import Rooms
from tandemd.core.memory.swap_places import Place, minimum_bytes, shared_out
from tandemd.core.model import NO_LIMIT, Group, GroupKey, Job, Options, Process, SwapOutcome
from tandemd.core.turns.quantum import turn_ns

MIB = 1 << 20
LEAST = 4 * UNIT  # a smaller move is not worth an order
NOTICE_NS = 1_000_000_000  # for an iteration to end before memory is taken from its job
RETRY_NS = 1_000_000_000  # how long after a failed move it is tried again
FAILURES = {
    SwapOutcome.NO_HOST_ROOM: "the host memory it was given is too small",
    SwapOutcome.NOT_DRAINED: "its work on the gpu does not end",
    SwapOutcome.FAILED: "a copy failed",
}


class Residency:
    """Tracks which processes were told to move their memory. Pure; belongs to the scheduler."""

    def __init__(self, line: MemoryLine) -> None:
        self._line = line
        self._places: dict[int, Place] = {}  # by process id; empty costs nothing
        self._rooms = Rooms()
        self._was_used = False
        self._assessments = Assessments(line)
        self._host_figures: tuple[int, ...] = ()
        self._host = HostRoom(self._places)
        self._filled_bytes = self._filled_ns = 0  # host memory filled, and the time that took
        self.crowds: dict[frozenset[int], Crowd] = {}  # crowded islands only
        self.asleep: set[int] = set()  # processes that may take memory only on their group's turn
        self.helped: set[int] = set()  # processes whose request fits once what can move has gone
        self.wake_at_ns: int | None = None

    @property
    def is_used(self) -> bool:
        """True if some memory can be moved, or could be at the last decision."""
        return bool(self._places) or self._was_used

    def watch(self, process: Process, job: Job) -> None:
        """Start to track a process that has attached."""
        if job.spec.swappable:
            home = Home(process=process)
            self._places[process.process_id] = Place(process=process, job=job, home=home)

    def forget(self, process: Process) -> None:
        """Drop a process that is gone, together with its host memory."""
        self._places.pop(process.process_id, None)
        self._host.forget(process.process_id)
        for gpu in sharing(process.gpus, self._line.capacity_bytes):
            self._rooms.forget(gpu)

    def hear(self, event: PoolRefused | PoolMade | PoolCopied) -> Iterator[OfferFile]:
        """Take in what became of a pool that was to be made, or to be copied to a file."""
        place = self._places.get(event.process_id)
        if place is None:
            return
        self.note_all()
        if isinstance(event, PoolMade):
            self._filled_bytes += event.size_bytes
            self._filled_ns += event.took_ns
            return
        if isinstance(event, PoolRefused):
            place.home.take_back(event.pool)
            return
        home = place.home
        offer = home.copied(
            event.pool, order=place.order + 1, why_not=event.why_not, now_ns=event.now_ns
        )
        if offer is not None:
            place.order = offer.order
            home.told = ""
            yield offer
        elif event.why_not and home.told != event.why_not:
            home.told = event.why_not
            why = f"what it has on the host stays in memory: {event.why_not}"
            place.job.tell(event.now_ns, why)

    # What is new

    def seat(self, islands: Iterable[Island]) -> None:
        """Take the current islands: one came or went, or a job on one changed."""
        self.crowds, self.asleep, self.helped = {}, set(), set()
        self.wake_at_ns = self._host.look_at_ns = None
        self._assessments.seat(islands, self._places)

    def note(self, group: Group) -> None:
        """Note that a fact of the group changed."""
        self._assessments.note(group)

    def note_all(self) -> None:
        """Note that anything may have changed."""
        self._assessments.note_all()

    # Before turns are given

    def review(self, now_ns: int) -> Iterator[Group]:
        """Take in where memory is; yield the groups for which a turn now means something else."""
        self._assessments.note_time(now_ns)
        self._assessments.take_notes(now_ns)
        if is_due(self._host.look_at_ns, now_ns) or any(a.review_is_due for a in self._assessments):
            self._look_at_host(now_ns)
        for assessment in self._assessments:
            is_new = assessment.review_is_due or assessment.reviewed_by != self._host_figures
            if is_new:
                assessment.review_is_due, assessment.reviewed_by = False, self._host_figures
                yield from self._review(assessment, now_ns)
            if is_new or assessment.priced_by != assessment.reorders:
                assessment.priced_by = assessment.reorders
                yield from self._price(assessment)

    def _look_at_host(self, now_ns: int) -> None:
        self._host_figures = self._host.figures(self._options, now_ns)

    @property
    def _options(self) -> Options:
        """The scheduler's options, the same on every island."""
        return next(assessment.island.options for assessment in self._assessments)

    def _review(self, assessment: Assessment, now_ns: int) -> Iterator[Group]:
        island = assessment.island
        assessment.decision_is_due = True
        assessment.review_again_ns = None
        assessment.grounds.clear()
        self._host.begin_review(assessment.places)
        self.crowds.pop(island.gpus, None)
        crowd = self._crowd(assessment, now_ns)
        if crowd is not None:
            self.crowds[island.gpus] = crowd
            self._note_in_the_way(crowd, island)
        for group in island.members:
            before = (group.needs_memory, group.misfit_bytes)
            self._judge(group, crowd, now_ns)
            if before != (group.needs_memory, group.misfit_bytes):
                yield group

    def _crowd(self, assessment: Assessment, now_ns: int) -> Crowd | None:
        """Return the crowd; None: all held and requested fits, or the capacity is not known."""
        island = assessment.island
        if not assessment.has_places or not island.gpus <= self._line.capacity_bytes.keys():
            return None
        claims = {}
        for group in island.members:
            claim = self._claim(group, island.options, now_ns)
            if claim is not None:
                claims[group.key] = claim
        room_bytes = min(self._room_bytes(gpu, island) for gpu in island.gpus)
        active = [claim for claim in claims.values() if claim.rank is not Rank.AWAY]
        is_away = any(claim.resident_bytes < claim.total_bytes for claim in active)
        kept_bytes = sum(claim.kept_bytes for claim in claims.values())
        wanted_bytes = sum(claim.needed_bytes - claim.kept_bytes for claim in active)
        if not is_away and wanted_bytes + kept_bytes <= room_bytes:
            return None
        first = {
            group.key
            for group in island.members
            if island.takes_no_turns(group) and not group.paused
        }
        too_much = {
            key
            for key, claim in claims.items()
            if claim.needed_bytes - claim.kept_bytes + kept_bytes > room_bytes
        }
        claims |= {key: replace(claims[key], pending_bytes=0) for key in too_much}
        by_group = assessment.places
        lacks = {key: Lack.of(by_group[key], claim.kept_bytes) for key, claim in claims.items()}
        lacking = {key: lack for key, lack in lacks.items() if lack is not None}
        host_bytes = {}
        if lacking:
            host_bytes = self._host.to_come_bytes(by_group, island.options, now_ns)
        return Crowd(
            room_bytes=room_bytes,
            claims=claims,
            first=first,
            too_much=too_much,
            lacking=lacking,
            host_bytes=host_bytes,
        )

    def _note_in_the_way(self, crowd: Crowd, island: Island) -> None:
        if not crowd.lacking:
            return
        waiting = [group for group in island.members if crowd.waits_for_the_host(group)]
        for key in crowd.in_the_way(waiting):
            lack = crowd.lacking[key]
            self._host.is_in_the_way(lack.places, lack.kept_bytes)

    def _claim(self, group: Group, options: Options, now_ns: int) -> Claim | None:
        """Return the group's claim, or None if it has nothing that moves and requests nothing."""
        places = self._places_of(group)
        pending_bytes = sum(in_units(request) for request in self._line.requests_of(group))
        if not places and not pending_bytes:
            return None
        is_away = group.paused or is_released(group, options, now_ns)
        return Claim(
            rank=Rank.AWAY if is_away else Rank.LATER,
            total_bytes=sum(place.process.usage.swappable_bytes for place in places),
            resident_bytes=sum(place.resident_bytes for place in places),
            pending_bytes=pending_bytes,
            kept_bytes=minimum_bytes(places),
        )

    def _room_bytes(self, gpu: int, island: Island) -> int:
        """Return how much room the GPU has for all memory that can be moved.

        It is not known on which of its GPUs a process has its memory, so all of it counts on each.
        """
        counted_bytes = self._line.capacity_bytes[gpu] - self._fixed_bytes(gpu, island)
        movable_bytes = self._movable_bytes(gpu, island)
        return self._rooms.room_bytes(gpu, counted_bytes=counted_bytes, held_bytes=movable_bytes)

    def _movable_bytes(self, gpu: int, island: Island) -> int:
        """Return how much movable memory is held of the memory of `gpu`."""
        memory, places = memory_of(gpu), self._places.values()
        return sum(
            place.resident_bytes
            for place in places
            if memory in place.process.memories and place.process.gpus & island.gpus
        )

    def _fixed_bytes(self, gpu: int, island: Island) -> int:
        """Return how much memory processes hold of the memory of `gpu` that cannot be moved."""
        total = self._line.beside_bytes(gpu, island.gpus)
        for group in island.members:
            for process in group.processes.values():
                if memory_of(gpu) in process.memories:
                    place = self._places.get(process.process_id)
                    movable_bytes = place.resident_bytes if place else 0
                    total += max(0, held_bytes(process) - movable_bytes)
        return total

    def _judge(self, group: Group, crowd: Crowd | None, now_ns: int) -> None:
        """Note whether a turn would give the group memory it waits for, or be no use to it."""
        had_to_go, group.misfit_bytes = bool(group.misfit_bytes), 0
        usages = [place.process.usage for place in self._places_of(group)]
        group.needs_memory = any(usage.waits_for_memory for usage in usages)
        claim = crowd.claims.get(group.key) if crowd else None
        if crowd is None or claim is None or group.paused:
            group.needs_memory &= not group.paused
            group.notice = None
            return
        room_bytes = crowd.room_now_for(group)
        misfit_bytes = max(0, claim.total_bytes - room_bytes)
        is_out = claim.resident_bytes < claim.total_bytes or had_to_go
        yields = group.key not in crowd.first
        if is_out or not yields:
            group.notice = None
        if is_out or (yields and self._has_to_go(group, misfit_bytes, now_ns)):
            group.misfit_bytes = misfit_bytes
        asks = claim.pending_bytes > 0 and claim.needed_bytes <= room_bytes
        asks &= group.key not in crowd.too_much
        group.needs_memory = (group.needs_memory or asks) and not group.misfit_bytes

    def _has_to_go(self, group: Group, misfit_bytes: int, now_ns: int) -> bool:
        """Tell whether a group must give its memory to groups that take no turns.

        It gives the memory up when an iteration of it ends, when it has nothing on the GPU, or when
        its notice expires.
        """
        if not misfit_bytes:
            group.notice = None
            return False
        steps, until_ns = group.notice = group.notice or (group.steps, now_ns + NOTICE_NS)
        if group.steps > steps or now_ns >= until_ns or not group.busy:
            group.notice = None
            return True
        assessment = self._assessments.of(group.key)
        assessment.review_again_ns = earliest(assessment.review_again_ns, until_ns)
        return False

    def _price(self, assessment: Assessment) -> Iterator[Group]:
        """Set what passing the turn on costs, and how long the turn must therefore last."""
        crowd = self.crowds.get(assessment.island.gpus)
        for group in assessment.island.members:
            before = (group.stall_ns, group.fill_ns, group.turn_ns)
            group.stall_ns = group.fill_ns = group.turn_ns = 0
            if crowd is not None and group.key == assessment.island.turns.holder:
                self._price_turn(group, assessment.island, crowd)
            if before != (group.stall_ns, group.fill_ns, group.turn_ns):
                yield group

    def _price_turn(self, holder: Group, island: Island, crowd: Crowd) -> None:
        queue = [group for group in island.turns.queue() if group is not holder]
        mine = crowd.claims.get(holder.key)
        theirs = crowd.claims.get(queue[0].key) if queue else None
        if mine is None or theirs is None:
            return
        others = (c.kept_bytes for c in crowd.claims.values() if c is not mine and c is not theirs)
        exchanged_bytes = stall_bytes(crowd.room_bytes - sum(others), mine, theirs)
        usages = [p.process.usage for group in island.members for p in self._places_of(group)]
        rate = link_bytes_s(usages, island.options.link_bytes_s)
        holder.stall_ns = int(exchanged_bytes / rate * 1e9)
        holder.fill_ns = self._fill_ns(holder, mine, exchanged_bytes)
        holder.turn_ns = turn_ns(
            holder.stall_ns, waiting=len(queue), max_hold_ns=island.options.max_hold_ns
        )

    def _fill_ns(self, group: Group, claim: Claim, leaving_bytes: int) -> int:
        """Return how long it takes to fill the host memory missing for this move; 0: not known."""
        if self._filled_bytes < ENOUGH:
            return 0
        stays_bytes = max(claim.kept_bytes, claim.total_bytes - leaving_bytes)
        missing_bytes = lacks_bytes(self._places_of(group), stays_bytes)
        return missing_bytes * self._filled_ns // self._filled_bytes

    # After turns were given

    def decide(self, now_ns: int) -> list[MoveMemory | HomeAction]:
        """Return what has to move now, and tell the jobs' stories about it."""
        self._was_used = bool(self._places)
        self._assessments.take_notes(now_ns)
        moves: list[MoveMemory | HomeAction] = []
        for assessment in filter(self._is_open, self._assessments):
            moves += self._hear(assessment, now_ns)
        decided = []
        for assessment in self._assessments:
            if self._is_open(assessment):
                moves += self._settle(assessment, now_ns)
                decided.append(assessment)
        if decided or is_due(self._host.look_at_ns, now_ns):
            moves += self._make_room(now_ns)
            self._keep(decided, now_ns)
        self.wake_at_ns = earliest(self._host.look_at_ns, self._assessments.look_again_ns)
        return moves

    def _is_open(self, assessment: Assessment) -> bool:
        return (
            assessment.decision_is_due
            or assessment.ordered_by != assessment.reorders
            or assessment.decided_by != self._host_figures
        )

    def _hear(self, assessment: Assessment, now_ns: int) -> list[MoveMemory | HomeAction]:
        """Take in the outcome of orders given to processes."""
        moves: list[MoveMemory | HomeAction] = []
        for place in chain.from_iterable(assessment.places.values()):
            if place.reported and not place.home.pools:
                continue  # it has no order that could have had an outcome
            before = (place.reported, place.home.is_asked)
            self._take_outcome(place, now_ns)
            told = [*place.home.answered(now_ns)]
            moves += told
            if told or before != (place.reported, place.home.is_asked):
                assessment.review_is_due = True
        if assessment.review_is_due:
            self._look_at_host(now_ns)
        return moves

    def _settle(self, assessment: Assessment, now_ns: int) -> list[MoveMemory | HomeAction]:
        assessment.decision_is_due = False
        assessment.decided_by, assessment.ordered_by = self._host_figures, assessment.reorders
        moves = self._decide(assessment, now_ns)
        if moves:
            assessment.note()
            self._look_at_host(now_ns)
        return moves

    def _decide(self, assessment: Assessment, now_ns: int) -> list[MoveMemory | HomeAction]:
        moves: list[MoveMemory | HomeAction] = []
        island, assessment.decide_again_ns = assessment.island, None
        self._host.begin(assessment.places)
        for group, target in self._targets(island, now_ns):
            for place, part in shared_out(self._places_of(group), target):
                move = self._told(place, part, island.options, now_ns)
                if move is not None:
                    moves += place.home.stop_copying()
                    moves.append(move)
        if assessment.has_places:
            self._watch_rooms(assessment, now_ns)
        self._watch_fixed(assessment, now_ns)
        return moves

    def _make_room(self, now_ns: int) -> Iterator[HomeAction]:
        if not self._places:
            return
        options = self._options
        coldest = self._coldest() if self._host.wants_files(options) else []
        for move in self._host.make(coldest, self._idle(now_ns), options, now_ns):
            self._assessments.of(self._places[move.process_id].job.group_key).note()
            yield move

    def _idle(self, now_ns: int) -> list[Place]:
        """Return the places whose memory will not leave the GPU as things stand."""
        return [
            place
            for assessment in self._assessments
            if assessment.island.gpus not in self.crowds
            for group in assessment.island.members
            if not (group.paused or is_released(group, assessment.island.options, now_ns))
            for place in self._places_of(group)
        ]

    def _coldest(self) -> list[Place]:
        """Return the places whose memory stays on the host for now, the one needed last first."""
        found = []
        for assessment in self._assessments:
            for rank, group in reversed(_by_need(assessment.island, now_ns=0)):
                if rank is not Rank.ON_TURN:
                    found += [(rank, group, place) for place in self._places_of(group)]
        found.sort(key=lambda each: (-each[0], each[1].last_wanted_ns))
        return [place for _, _, place in found if place.rests_on_host]

    def _keep(self, decided: list[Assessment], now_ns: int) -> None:
        """Keep what was decided for as long as its grounds hold."""
        wants_files = self._host.wants_files(self._options)
        for each in self._assessments:
            if each in decided or each.is_timed != wants_files:
                crowd = self.crowds.get(each.island.gpus)
                each.asleep = set() if crowd is None else _asleep(each.island)
                each.helped = self._helped(each, crowd)
                is_close = wants_files or crowd is not None or self._someone_waits(each.island)
                self._assessments.keep(each, now_ns, is_close=is_close, is_timed=wants_files)
        self.asleep = set().union(*(each.asleep for each in self._assessments))
        self.helped = set().union(*(each.helped for each in self._assessments))

    def _someone_waits(self, island: Island) -> bool:
        return any(g.needs_memory or any(self._line.requests_of(g)) for g in island.members)

    def _helped(self, assessment: Assessment, crowd: Crowd | None) -> set[int]:
        if (
            not assessment.has_places
            or not assessment.island.gpus <= self._line.capacity_bytes.keys()
        ):
            return set()
        return {
            process_id
            for group in assessment.island.members
            if crowd is None or not crowd.cannot_hold(group)
            for process_id in group.processes
        }

    def why_it_stays(self, job: Job) -> str:
        """Return why memory of a paused job is still on the GPU; empty if that is not known."""
        places = (place for place in self._places.values() if place.job is job)
        return next((p.stays_because for p in places if p.resident_bytes and p.stays_because), "")

    def _targets(self, island: Island, now_ns: int) -> Iterator[tuple[Group, int]]:
        """Yield how much of each group that has movable memory should be on the GPU."""
        crowd = self.crowds.get(island.gpus)
        if crowd is None:
            for group in island.members:
                is_away = group.paused or is_released(group, island.options, now_ns)
                if is_away and self._is_still(group, island, now_ns):
                    yield group, self._target_away(group, island.options)
                elif is_away and self._is_fixed(group, now_ns):
                    yield group, _as_told(self._places_of(group))
                else:
                    yield group, NO_LIMIT
            return
        order = [(rank, g) for rank, g in _by_need(island, now_ns) if g.key in crowd.claims]
        wished = [
            replace(
                crowd.claims[group.key], rank=rank, can_go=self._is_still(group, island, now_ns)
            )
            for rank, group in order
        ]
        claims = self._stuck(order, wished, island.options)
        targets = plan(crowd.room_bytes, claims)
        if claims != wished:
            self._note_lacks(order, plan(crowd.room_bytes, wished), targets)
        # By the count, nobody can use the turn. The count may be wrong: a group with a waiting call
        # may try and find out, but not at the expense of groups that take no turns and wait for
        # memory.
        asked = any(claim.rank is Rank.ON_TURN and claim.pending_bytes for claim in claims)
        stranded = None if island.turns.holder or asked else _stranded(order)
        for (rank, group), claim, target in zip(order, claims, targets, strict=True):
            whole = rank is Rank.ON_TURN or group is stranded
            yield group, NO_LIMIT if whole else min(target, claim.total_bytes)

    def _target_away(self, group: Group, options: Options) -> int:
        """Return the target of a group that needs nothing on the GPU.

        All of it goes, or as much as files can make room for.
        """
        places = self._places_of(group)
        least = minimum_bytes(places)
        stuck = least_bytes(places, self._host.left_bytes(options))
        if stuck <= least:
            return least
        self._host.lacks(places, least)
        if options.file_limit_bytes and is_worth_it(places, stuck, least):
            return stuck
        return _as_told(places)

    def _stuck(
        self, order: list[tuple[Rank, Group]], claims: list[Claim], options: Options
    ) -> list[Claim]:
        """Add to each claim what the host has no room for; groups needed last get room first."""
        left_bytes = self._host.left_bytes(options)
        found = []
        for (_, group), claim in zip(reversed(order), reversed(claims), strict=True):
            places = self._places_of(group)
            if claim.can_go and places and claim.rank is not Rank.ON_TURN:
                stuck = least_bytes(places, left_bytes)
                kept = claim.kept_bytes
                if options.file_limit_bytes and not is_worth_it(places, stuck, kept):
                    stuck = claim.resident_bytes
                if stuck:
                    claim = replace(claim, stuck_bytes=stuck)
                left_bytes -= lacks_bytes(places, claim.least_bytes)
            found.append(claim)
        return found[::-1]

    def _note_lacks(
        self, order: list[tuple[Rank, Group]], wished: list[int], targets: list[int]
    ) -> None:
        """Note the groups that would move out, or move out further, if the host had room."""
        for (_, group), wish, target in zip(order, wished, targets, strict=True):
            if wish < target:
                self._host.lacks(self._places_of(group), wish)

    def _is_still(self, group: Group, island: Island, now_ns: int) -> bool:
        """Tell whether the group has nothing on or bound for the GPU, and no move just failed."""
        if self._is_fixed(group, now_ns):
            return False
        if not group.open:
            return group.drained
        return not (island.has_turn(group) or group.busy or group.wants)

    def _is_fixed(self, group: Group, now_ns: int) -> bool:
        return any(now_ns < place.fixed_until_ns for place in self._places_of(group))

    def _told(self, place: Place, target: int, options: Options, now_ns: int) -> MoveMemory | None:
        """Return the order that the process needs, if any."""
        usage = place.process.usage
        if place.home.is_asked:
            return None  # it answers soon, and is looked at again then
        if target >= usage.swappable_bytes:
            target = NO_LIMIT
        if target >= place.resident_bytes:
            return self._told_to_come(place, target)
        is_told = place.is_moving and place.target_bytes <= target
        if now_ns < place.fixed_until_ns or is_told:
            return None
        more_bytes = self._host.promise(place, target, options)
        if more_bytes is None:
            return None  # another process that moves out now has taken the room
        move = _order(place, target, pool_bytes=more_bytes)
        place.home.give(move.order, more_bytes)
        return move

    def _told_to_come(self, place: Place, target: int) -> MoveMemory | None:
        if place.target_bytes == NO_LIMIT:
            return None
        if target != NO_LIMIT and target - place.target_bytes < LEAST:
            return None
        return _order(place, target, pool_bytes=0)

    def _take_outcome(self, place: Place, now_ns: int) -> None:
        usage = place.process.usage
        if place.reported or place.is_moving:
            return
        place.reported = True
        place.stays_because = ""
        if (why := FAILURES.get(usage.swap_outcome)) is not None:
            place.tell_it_stays(now_ns, why)
            # Memory that moved out by an earlier order stays on the host, and has to be told to
            # return.
            place.target_bytes = place.resident_bytes if usage.swapped_bytes else NO_LIMIT
            place.fixed_until_ns = now_ns + RETRY_NS
        elif place.job.paused and place.target_bytes == 0:
            place.was_suspended = True
            moved = usage.swapped_bytes // MIB
            place.job.tell(now_ns, f"{moved} MiB of its memory is on the host")
        elif place.was_suspended and place.target_bytes == NO_LIMIT:
            place.was_suspended = False
            place.job.tell(now_ns, "its memory is back on the gpu")

    def _watch_fixed(self, assessment: Assessment, now_ns: int) -> None:
        for places in assessment.places.values():
            for place in places:
                if place.fixed_until_ns > now_ns:
                    assessment.decide_again_ns = earliest(
                        assessment.decide_again_ns, place.fixed_until_ns
                    )

    def _watch_rooms(self, assessment: Assessment, now_ns: int) -> None:
        island = assessment.island
        waits = self._waits_in_vain(island)
        for gpu in island.gpus & self._line.capacity_bytes.keys():
            look_ns = self._rooms.watch(
                gpu,
                waits=waits,
                held_bytes=self._movable_bytes(gpu, island),
                capacity_bytes=self._line.capacity_bytes[gpu],
                now_ns=now_ns,
            )
            assessment.decide_again_ns = earliest(assessment.decide_again_ns, look_ns)

    def _waits_in_vain(self, island: Island) -> bool:
        """Tell whether a group that may have memory now waits for it while nobody makes room."""
        crowd = self.crowds.get(island.gpus)
        for group in island.members:
            if group.busy and not island.has_turn(group):
                return False  # it is draining to make room
            for place in self._places_of(group):
                if place.is_moving and place.target_bytes < place.resident_bytes:
                    return False
        return any(
            group.needs_memory or any(self._line.requests_of(group))
            for group in island.members
            if not group.paused
            and (crowd is None or (island.has_turn(group) and not crowd.cannot_hold(group)))
        )

    # Small things

    def _places_of(self, group: Group) -> list[Place]:
        return self._assessments.of(group.key).places[group.key]


def _asleep(island: Island) -> set[int]:
    return {
        process_id
        for group in island.members
        if group.paused or not island.has_turn(group)
        for process_id in group.processes
    }


def _as_told(places: list[Place]) -> int:
    """Return how much of `places` is on the GPU, or will be once their newest orders are done."""
    if all(place.target_bytes == NO_LIMIT for place in places):
        return NO_LIMIT
    return sum(
        min(place.target_bytes, place.resident_bytes) if place.is_moving else place.resident_bytes
        for place in places
    )


def _order(place: Place, target_bytes: int, *, pool_bytes: int) -> MoveMemory:
    place.order += 1
    place.target_bytes = target_bytes
    place.reported = False
    return MoveMemory(
        process_id=place.process.process_id,
        order=place.order,
        target_bytes=target_bytes,
        pool_bytes=pool_bytes,
    )


def _stranded(order: list[tuple[Rank, Group]]) -> Group | None:
    """Return the first group with a waiting call whose memory does not fit by the count."""
    waiting = (group for _, group in order if group.misfit_bytes and group.calls)
    return next(waiting, None)


def _by_need(island: Island, now_ns: int) -> list[tuple[Rank, Group]]:
    """Return all groups, the one that needs memory soonest first.

    The order is: on turn, next, in line, idle, paused.
    """
    kept: dict[GroupKey, tuple[Rank, Group]] = {}
    active = [
        group
        for group in island.members
        if not (group.paused or is_released(group, island.options, now_ns))
    ]
    for group in active:
        if island.has_turn(group):
            kept[group.key] = (Rank.ON_TURN, group)
    rank = Rank.NEXT
    for group in island.turns.queue():
        if group.key not in kept:
            kept[group.key] = (rank, group)
            rank = Rank.LATER
    for group in sorted(active, key=lambda g: -g.last_wanted_ns):
        kept.setdefault(group.key, (Rank.LATER, group))
    for group in island.members:
        kept.setdefault(group.key, (Rank.AWAY, group))
    return list(kept.values())
