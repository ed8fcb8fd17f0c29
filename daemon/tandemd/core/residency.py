"""Whose memory is on the GPU: that of paused jobs goes, and between turns what does not fit.

Only memory of jobs that may be moved (`swappable`) moves, and only while nothing of its group is
on the GPU (suspend and resume as in Gandiva, Xiao et al., OSDI 2018). The host's room is promised
before anything moves (homes.py). What a job was promised as its minimum never moves.

Where what groups have and ask for does not fit together (the island is *crowded*), memory follows
the turn: `review` says before a turn is given who can use one and what a change of turns costs,
`decide` moves memory to whoever has it (placement.py). What a crowded GPU has for this is counted
from what processes hold; where the driver still refuses, there is less than that, and the
difference is learned (rooms.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from tandemd.core.crowds import Crowd
from tandemd.core.events import MoveMemory, OfferFile, PoolCopied, PoolRefused
from tandemd.core.homes import UNIT, Home, HomeAction, in_units
from tandemd.core.host_room import HostRoom, is_worth_it
from tandemd.core.lacks import Lack, lacks_bytes, least_bytes
from tandemd.core.link_rate import link_bytes_s
from tandemd.core.memories import memory_of, sharing
from tandemd.core.memory_line import MemoryLine, held_bytes
from tandemd.core.model import NO_LIMIT, Group, GroupKey, Job, Options, Process, SwapOutcome
from tandemd.core.placement import Claim, Rank, plan, stall_bytes
from tandemd.core.policy import Policy
from tandemd.core.quantum import turn_ns
from tandemd.core.rooms import Rooms
from tandemd.core.swap_places import Place, minimum_bytes, shared_out
from tandemd.core.turns import Turns

MIB = 1 << 20
LEAST = 4 * UNIT  # less is not worth an order
NOTICE_NS = 1_000_000_000  # for an iteration to end, before memory is taken from its job
RETRY_NS = 1_000_000_000  # memory that could not be moved is tried again after this
FAILURES = {
    SwapOutcome.NO_HOST_ROOM: "the host memory it was given does not hold it",
    SwapOutcome.NOT_DRAINED: "its work on the gpu does not end",
    SwapOutcome.FAILED: "a copy failed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Island:
    """What is looked at: one island, and who of it has the turn."""

    gpus: frozenset[int]
    members: list[Group]
    turns: Turns
    policy: Policy
    options: Options

    def has_turn(self, group: Group) -> bool:
        """It need not wait for others to have its memory."""
        turns = self.turns
        on_turn = (turns.holder, turns.companion, turns.third)
        return self.takes_no_turns(group) or group.key in on_turn

    def takes_no_turns(self, group: Group) -> bool:
        """Its gate is open whatever others do."""
        return group.undrainable or self.policy.always_open(group)


class Residency:
    """Which processes were told to move their memory. Pure; belongs to the scheduler."""

    def __init__(self, line: MemoryLine) -> None:
        self._line = line
        self._places: dict[int, Place] = {}  # process; empty costs nothing
        self._rooms = Rooms()
        self._was_used = False
        self._wake_in_review_ns: int | None = None
        self._by_group: dict[GroupKey, list[Place]] = {}  # of a review
        self._host = HostRoom(self._places)
        self.crowds: dict[frozenset[int], Crowd] = {}  # crowded islands only
        self.wake_at_ns: int | None = None

    @property
    def is_used(self) -> bool:
        """There is memory that can be moved, or was just now."""
        return bool(self._places) or self._was_used

    def watch(self, process: Process, job: Job) -> None:
        """The process attached."""
        if job.spec.swappable:
            home = Home(process=process)
            self._places[process.process_id] = Place(process=process, job=job, home=home)

    def forget(self, process: Process) -> None:
        """The process is gone, and its host memory with it."""
        self._places.pop(process.process_id, None)
        for gpu in sharing(process.gpus, self._line.capacity_bytes):
            self._rooms.forget(gpu)

    def hear(self, event: PoolRefused | PoolCopied) -> Iterator[OfferFile]:
        """Take in what came of memory that was to be given, or copied to a file."""
        place = self._places.get(event.process_id)
        if place is None:
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

    # Before turns are given

    def review(self, islands: Iterable[Island], now_ns: int) -> Iterator[Group]:
        """Take in where memory is; yields the groups to which turns now mean something else."""
        self.crowds, self._was_used = {}, bool(self._places)
        self._wake_in_review_ns = None
        self._host.begin_review()
        self._by_group = {}
        for island in islands:
            self._by_group |= {group.key: self._found(group) for group in island.members}
            crowd = self._crowd(island, now_ns)
            if crowd is not None:
                self.crowds[island.gpus] = crowd
                self._note_in_the_way(crowd, island)
            for group in island.members:
                before = (group.needs_memory, group.misfit_bytes, group.stall_ns, group.turn_ns)
                self._judge(group, crowd, now_ns)
                if crowd is not None and group.key == island.turns.holder:
                    self._price(group, island, crowd)
                after = (group.needs_memory, group.misfit_bytes, group.stall_ns, group.turn_ns)
                if before != after:
                    yield group

    def _crowd(self, island: Island, now_ns: int) -> Crowd | None:
        """None: all that is held and asked for fits, or it is not known what there is."""
        if not island.gpus <= self._line.capacity_bytes.keys():
            return None
        if not any(self._places_of(group) for group in island.members):
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
        by_group = {group.key: self._places_of(group) for group in island.members}
        lacks = {key: Lack.of(places, minimum_bytes(places)) for key, places in by_group.items()}
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
        """None: it has nothing that moves, and asks for nothing."""
        places = self._places_of(group)
        pending_bytes = sum(in_units(request) for request in self._requests(group))
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

    def _requests(self, group: Group) -> Iterator[int]:
        for process_id in group.processes:
            waiter = self._line.waiters.get(process_id)
            if waiter is not None and not waiter.is_refused and not waiter.wait.is_quota:
                yield waiter.wait.size_bytes

    def _room_bytes(self, gpu: int, island: Island) -> int:
        """What is there for all that can be moved.

        Where a process has its memory is not known: it counts on each of its GPUs.
        """
        counted_bytes = self._line.capacity_bytes[gpu] - self._fixed_bytes(gpu, island)
        movable_bytes = self._movable_bytes(gpu, island)
        return self._rooms.room_bytes(gpu, counted_bytes=counted_bytes, held_bytes=movable_bytes)

    def _movable_bytes(self, gpu: int, island: Island) -> int:
        """What is held of the memory of `gpu` of what can be moved."""
        memory, places = memory_of(gpu), self._places.values()
        return sum(
            place.resident_bytes
            for place in places
            if memory in place.process.memories and place.process.gpus & island.gpus
        )

    def _fixed_bytes(self, gpu: int, island: Island) -> int:
        """What processes hold of the memory of `gpu` that cannot be moved."""
        total = self._line.beside_bytes(gpu, island.gpus)
        for group in island.members:
            for process in group.processes.values():
                if memory_of(gpu) in process.memories:
                    place = self._places.get(process.process_id)
                    movable_bytes = place.resident_bytes if place else 0
                    total += max(0, held_bytes(process) - movable_bytes)
        return total

    def _judge(self, group: Group, crowd: Crowd | None, now_ns: int) -> None:
        """Whether a turn would give the group memory that it waits for, or it cannot run."""
        had_to_go, group.misfit_bytes = bool(group.misfit_bytes), 0
        group.stall_ns = group.turn_ns = 0
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
        """Those who go before it need its memory: at the end of its iteration it gives that up."""
        if not misfit_bytes:
            group.notice = None
            return False
        steps, until_ns = group.notice = group.notice or (group.steps, now_ns + NOTICE_NS)
        if group.steps > steps or now_ns >= until_ns or not group.busy:
            group.notice = None
            return True
        self._wake_in_review_ns = min(self._wake_in_review_ns or until_ns, until_ns)
        return False

    def _price(self, holder: Group, island: Island, crowd: Crowd) -> None:
        """What passing the turn on costs, and how long the turn lasts at least for that."""
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
        holder.turn_ns = turn_ns(
            holder.stall_ns, waiting=len(queue), max_hold_ns=island.options.max_hold_ns
        )

    # After turns were given

    def decide(self, islands: list[Island], now_ns: int) -> list[MoveMemory | HomeAction]:
        """What has to move now; says so in the jobs' stories."""
        moves: list[MoveMemory | HomeAction] = []
        self.wake_at_ns = self._wake_in_review_ns
        self._host.begin()
        for place in self._places.values():
            self._take_outcome(place, now_ns)
            moves += place.home.answered(now_ns)
        for island in islands:
            for group, target in self._targets(island, now_ns):
                for place, part in shared_out(self._places_of(group), target):
                    move = self._told(place, part, island.options, now_ns)
                    if move is not None:
                        moves += place.home.stop_copying()
                        moves.append(move)
            self._watch_rooms(island, now_ns)
            self._watch_time(island, now_ns)
        if self._places:
            options = islands[0].options
            coldest = self._coldest(islands) if self._host.wants_files(options) else []
            moves += self._host.make(coldest, self._idle(islands, now_ns), options, now_ns)
            if self._host.look_at_ns is not None:
                self._wake(self._host.look_at_ns)
        return moves

    def _idle(self, islands: list[Island], now_ns: int) -> list[Place]:
        """Those whose memory is not going to leave the GPU, as things are."""
        return [
            place
            for island in islands
            if island.gpus not in self.crowds
            for group in island.members
            if not (group.paused or is_released(group, island.options, now_ns))
            for place in self._places_of(group)
        ]

    def _coldest(self, islands: list[Island]) -> list[Place]:
        """Those with memory on the host that stays there for now: who needs it last, first."""
        found = []
        for island in islands:
            for rank, group in reversed(_by_need(island, now_ns=0)):
                if rank is not Rank.ON_TURN:
                    found += [(rank, group, place) for place in self._places_of(group)]
        found.sort(key=lambda each: (-each[0], each[1].last_wanted_ns))
        return [place for _, _, place in found if place.rests_on_host]

    def why_it_stays(self, job: Job) -> str:
        """Why memory of a paused job is still on the GPU, where that is known; else empty."""
        places = (place for place in self._places.values() if place.job is job)
        return next((p.stays_because for p in places if p.resident_bytes and p.stays_because), "")

    def asleep(self, islands: Iterable[Island]) -> set[int]:
        """Processes that may take memory only when it is their group's turn."""
        return {
            process_id
            for island in islands
            if island.gpus in self.crowds
            for group in island.members
            if group.paused or not island.has_turn(group)
            for process_id in group.processes
        }

    def helped(self, islands: Iterable[Island]) -> set[int]:
        """Processes for whose request there is room once what can be moved has gone."""
        found: set[int] = set()
        for island in islands:
            crowd = self.crowds.get(island.gpus)
            if not island.gpus <= self._line.capacity_bytes.keys():
                continue
            if not any(self._places_of(group) for group in island.members):
                continue
            for group in island.members:
                if crowd is None or not crowd.cannot_hold(group):
                    found.update(group.processes)
        return found

    def _targets(self, island: Island, now_ns: int) -> Iterator[tuple[Group, int]]:
        """How much of each group that has something to move should be on the GPU."""
        crowd = self.crowds.get(island.gpus)
        if crowd is None:
            for group in island.members:
                is_away = group.paused or is_released(group, island.options, now_ns)
                goes = is_away and self._is_still(group, island, now_ns)
                yield group, self._target_away(group, island.options) if goes else NO_LIMIT
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
        # Nobody can use the turn, by the count. That may be wrong: who calls finds out, but not at
        # the cost of those who take no turns and wait for memory.
        asked = any(claim.rank is Rank.ON_TURN and claim.pending_bytes for claim in claims)
        stranded = None if island.turns.holder or asked else _stranded(order)
        for (rank, group), claim, target in zip(order, claims, targets, strict=True):
            whole = rank is Rank.ON_TURN or group is stranded
            yield group, NO_LIMIT if whole else min(target, claim.total_bytes)

    def _target_away(self, group: Group, options: Options) -> int:
        """Of a group that needs nothing on the GPU: all goes, or as much as files make room for."""
        places = self._places_of(group)
        least = minimum_bytes(places)
        stuck = least_bytes(places, self._host.left_bytes(options))
        if stuck <= least:
            return least
        self._host.lacks(places, least)
        is_begun = any(place.target_bytes != NO_LIMIT for place in places)
        if options.file_limit_bytes and is_worth_it(places, stuck, least):
            return stuck
        return sum(place.resident_bytes for place in places) if is_begun else NO_LIMIT

    def _stuck(
        self, order: list[tuple[Rank, Group]], claims: list[Claim], options: Options
    ) -> list[Claim]:
        """The claims, and what of them the host has no room for: those needed last come first."""
        left_bytes = self._host.left_bytes(options)
        found = []
        for (_, group), claim in zip(reversed(order), reversed(claims), strict=True):
            places = self._places_of(group)
            if claim.can_go and places and claim.rank is not Rank.ON_TURN:
                stuck = least_bytes(places, left_bytes)
                kept = claim.kept_bytes
                if options.file_limit_bytes and not is_worth_it(places, stuck, kept):
                    stuck = claim.resident_bytes
                claim = replace(claim, stuck_bytes=stuck)
                left_bytes -= lacks_bytes(places, claim.least_bytes)
            found.append(claim)
        return found[::-1]

    def _note_lacks(
        self, order: list[tuple[Rank, Group]], wished: list[int], targets: list[int]
    ) -> None:
        """Who would go now, or go further, if the host had room for it."""
        for (_, group), wish, target in zip(order, wished, targets, strict=True):
            if wish < target:
                self._host.lacks(self._places_of(group), wish)

    def _is_still(self, group: Group, island: Island, now_ns: int) -> bool:
        """Nothing of it is on the GPU or is to come there, and moving it did not just fail."""
        if any(now_ns < place.fixed_until_ns for place in self._places_of(group)):
            return False
        if not group.open:
            return group.drained
        return not (island.has_turn(group) or group.busy or group.wants)

    def _told(self, place: Place, target: int, options: Options, now_ns: int) -> MoveMemory | None:
        """The order that is needed, if any."""
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
            return None  # another that goes now has it
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
            place.target_bytes = NO_LIMIT
            place.fixed_until_ns = now_ns + RETRY_NS
        elif place.job.paused and place.target_bytes == 0:
            place.was_suspended = True
            moved = usage.swapped_bytes // MIB
            place.job.tell(now_ns, f"{moved} MiB of its memory are on the host")
        elif place.was_suspended and place.target_bytes == NO_LIMIT:
            place.was_suspended = False
            place.job.tell(now_ns, "its memory is back on the gpu")

    def _watch_time(self, island: Island, now_ns: int) -> None:
        for group in island.members:
            release_ns = _released_at_ns(group, island.options)
            if release_ns is not None and release_ns > now_ns:
                self._wake(release_ns)
            for place in self._places_of(group):
                if place.fixed_until_ns > now_ns:
                    self._wake(place.fixed_until_ns)

    def _watch_rooms(self, island: Island, now_ns: int) -> None:
        if not any(self._places_of(group) for group in island.members):
            return
        waits = self._waits_in_vain(island)
        for gpu in island.gpus & self._line.capacity_bytes.keys():
            look_ns = self._rooms.watch(
                gpu,
                waits=waits,
                held_bytes=self._movable_bytes(gpu, island),
                capacity_bytes=self._line.capacity_bytes[gpu],
                now_ns=now_ns,
            )
            if look_ns is not None:
                self._wake(look_ns)

    def _waits_in_vain(self, island: Island) -> bool:
        """Somebody who may have memory now waits for it, and nobody is about to make room."""
        crowd = self.crowds.get(island.gpus)
        for group in island.members:
            if group.busy and not island.has_turn(group):
                return False  # it is to make room, and drains
            for place in self._places_of(group):
                if place.is_moving and place.target_bytes < place.resident_bytes:
                    return False
        return any(
            group.needs_memory or any(self._requests(group))
            for group in island.members
            if not group.paused
            and (crowd is None or (island.has_turn(group) and not crowd.cannot_hold(group)))
        )

    # Small things

    def _places_of(self, group: Group) -> list[Place]:
        return self._by_group[group.key]

    def _found(self, group: Group) -> list[Place]:
        places = self._places
        return [places[process_id] for process_id in group.processes if process_id in places]

    def _wake(self, at_ns: int) -> None:
        self.wake_at_ns = at_ns if self.wake_at_ns is None else min(self.wake_at_ns, at_ns)


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
    """The first that waits for memory which it cannot have by the count."""
    for rank, group in order:
        if rank is not Rank.AWAY and group.misfit_bytes and group.calls:
            return group
    return None


def _released_at_ns(group: Group, options: Options) -> int | None:
    """When it gives its memory up if nothing of it happens until then."""
    said = [options.idle_release_of(job.spec) for job in group.jobs.values()]
    if group.busy or group.wants or not all(said):
        return None
    return group.last_wanted_ns + max(said)


def is_released(group: Group, options: Options, now_ns: int) -> bool:
    """It was idle for so long that it gives its memory up."""
    at_ns = _released_at_ns(group, options)
    return at_ns is not None and now_ns >= at_ns


def _by_need(island: Island, now_ns: int) -> list[tuple[Rank, Group]]:
    """Who needs memory soonest, first: on turn, next, in line, idle, paused."""
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
