"""Who may come onto a GPU so that all who are on it can finish: admission by lanes.

After Salus (Yu and Chowdhury, MLSys 2020). A member, which is a group, holds its *persistent* bytes
as long as it is on the GPU, and within an iteration at most its *ephemeral* bytes besides. Members
of one lane take turns, an iteration each; lanes run side by side. A lane is as large as the largest
ephemeral part of its members, and

    persistent bytes of all members + sizes of all lanes <= capacity

always holds. So nobody on the GPU ever waits for memory, and nobody who waits has any: that nothing
can lock up is proved in docs/admission.md.

1. Who finds room for all it may use gets a lane of its own; else it joins the lane that has to grow
   least, if there is room for that; else it waits in line, with nothing on the GPU.
2. The line is looked through when somebody came or left, in its order. Where that does not let
   anybody overtake, nobody goes before the first.
3. A lane is its running member's until the iteration ends; then it goes to the first, in the same
   order, of those who want it. What a member was served before it came to the lane, or others while
   it wanted nothing, does not count there.
4. Whose need is not known, but for its limit, which may be the capacity, comes if that is free,
   with all of it persistent. Else it comes *alone*: while it is, nobody else is let in or begins
   an iteration, and it begins when all others are between theirs. It may use all that they do not
   hold for good. Once its need is known it goes on like the others, if there is room for that, and
   else stays alone until it leaves.

Sizes are promises: who may use more than it said breaks all of it, so a member's memory limit is
`limit_bytes`. Belongs to one thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tandemd.core.errors import NeverFitsError
from tandemd.core.model import GroupKey
from tandemd.core.words import size_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Device memory in bytes, contexts and pools included; 0 or more each."""

    persistent_bytes: int  # for as long as it is on the GPU
    ephemeral_bytes: int  # at most, besides, within an iteration

    @property
    def peak_bytes(self) -> int:
        """The most it may ever hold."""
        return self.persistent_bytes + self.ephemeral_bytes

    def covers(self, other: Need) -> bool:
        """Whether it is no less than another one, in both."""
        return (
            self.persistent_bytes >= other.persistent_bytes
            and self.ephemeral_bytes >= other.ephemeral_bytes
        )


@dataclass(slots=True, kw_only=True, eq=False)
class Member:
    """One who asked to come."""

    key: GroupKey
    need: Need | None  # None: not known yet
    arrival: int  # 0, 1, 2.. in order of asking
    most_bytes: int  # its limit, where its need is not known
    remaining_ns: float  # GPU time until it is done; infinite = not known
    served_ns: int = 0  # in line: so far; in a lane: by the clock of that lane

    @property
    def persistent_bytes(self) -> int:
        """What is known of it."""
        return 0 if self.need is None else self.need.persistent_bytes

    @property
    def ephemeral_bytes(self) -> int:
        """What is known of it."""
        return 0 if self.need is None else self.need.ephemeral_bytes

    @property
    def peak_bytes(self) -> float:
        """The most it may ever hold; infinite = not known."""
        return float("inf") if self.need is None else self.need.peak_bytes


@dataclass(slots=True, kw_only=True, eq=False)
class Lane:
    """Members whose iterations take turns."""

    number: int
    members: dict[GroupKey, Member] = field(default_factory=dict)
    running: Member | None = None
    wanting: dict[GroupKey, Member] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        """Room for an iteration of any of its members."""
        return max((m.ephemeral_bytes for m in self.members.values()), default=0)

    @property
    def persistent_bytes(self) -> int:
        """Of all its members."""
        return sum(member.persistent_bytes for member in self.members.values())

    def join(self, member: Member) -> None:
        """Its clock starts with whoever was served least: what was before gives no turns."""
        others = self.members.values()
        member.served_ns = min((one.served_ns for one in others), default=member.served_ns)
        self.members[member.key] = member

    def want(self, member: Member) -> None:
        """It may have rested: the turns that it did not want then are not made up for."""
        active = [*self.wanting.values(), *([self.running] if self.running else [])]
        least_ns = min((one.served_ns for one in active), default=0)
        member.served_ns = max(member.served_ns, least_ns)
        self.wanting[member.key] = member

    def cost_bytes(self, need: Need) -> int:
        """What a further member would take of the room there is."""
        growth_bytes = max(0, need.ephemeral_bytes - self.size_bytes)
        return need.persistent_bytes + growth_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Who comes first, and whether somebody behind it may come in while it does not fit."""

    rank: Callable[[Member], tuple[float, int]]  # lowest first
    overtakes: bool


ORDERS = {
    "fifo": Order(rank=lambda member: (0, member.arrival), overtakes=False),
    # Shortest remaining time, least service so far, largest: all let the smaller ones by.
    "srtf": Order(rank=lambda member: (member.remaining_ns, member.arrival), overtakes=True),
    "fair": Order(rank=lambda member: (member.served_ns, member.arrival), overtakes=True),
    "pack": Order(rank=lambda member: (-member.peak_bytes, member.arrival), overtakes=True),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of an event, in order."""

    admitted: tuple[GroupKey, ...] = ()
    begun: tuple[GroupKey, ...] = ()  # may run an iteration now


class Lanes:
    """Admission to one GPU."""

    def __init__(self, *, capacity_bytes: int, order: str = "fifo") -> None:
        """`order` is one of ORDERS."""
        self.capacity_bytes = capacity_bytes
        self.reserved_bytes = 0  # of these, for what is no member's: contexts, and others' memory
        self.order = order  # one of ORDERS; may be changed
        self.changes = 0  # so far: of who is where, needs what, and may run
        self._arrivals = 0
        self._numbers = 0
        self._line: dict[GroupKey, Member] = {}
        self._lanes: dict[int, Lane] = {}
        self._alone: list[Lane] = []  # of rule 4: one member each; the first may run
        self._of: dict[GroupKey, Lane] = {}

    @property
    def free_bytes(self) -> int:
        """Neither held for good nor needed by a lane."""
        lanes_bytes = sum(lane.size_bytes for lane in self._lanes.values())
        return self._beside_bytes() - lanes_bytes

    @property
    def waiting(self) -> list[GroupKey]:
        """Who is in line, the first one first."""
        return [member.key for member in self._in_order()]

    @property
    def lanes(self) -> list[frozenset[GroupKey]]:
        """Who shares a lane, the oldest lane first; without who is alone."""
        return [frozenset(lane.members) for lane in self._lanes.values()]

    @property
    def alone(self) -> list[GroupKey]:
        """Who runs iterations while nobody else does; the first one may."""
        return [key for lane in self._alone for key in lane.members]

    def __contains__(self, key: GroupKey) -> bool:
        """Whether it has asked, and not left."""
        return key in self._line or key in self._of

    def is_running(self, key: GroupKey) -> bool:
        """Whether it may run an iteration now."""
        lane = self._of.get(key)
        return lane is not None and lane.running is not None and lane.running.key == key

    def is_wanting(self, key: GroupKey) -> bool:
        """Whether it waits for its turn."""
        lane = self._of.get(key)
        return lane is not None and key in lane.wanting

    def is_admitted(self, key: GroupKey) -> bool:
        """Whether it may have anything on the GPU."""
        return key in self._of

    def need_of(self, key: GroupKey) -> Need | None:
        """What it may use; None: it is not known."""
        lane = self._of.get(key)
        return (self._line if lane is None else lane.members)[key].need

    def running_with(self, key: GroupKey) -> GroupKey | None:
        """Whose iteration it has to wait for; None: nobody's."""
        lane = self._of[key]
        rivals = [lane]
        if self._alone:
            rivals = [self._alone[0], *self._lanes.values()] if lane in self._alone else self._alone
        found = (other.running for other in rivals if other.running and other.running.key != key)
        return next((member.key for member in found), None)

    def takes_turns(self, key: GroupKey) -> bool:
        """Whether its iterations have to end for others to begin theirs."""
        return len(self._of[key].members) > 1 or bool(self._alone)

    def limit_bytes(self, key: GroupKey) -> int:
        """What one that is admitted may hold at most."""
        lane = self._of[key]
        need = lane.members[key].need
        if need is None or lane in self._alone:
            rest_bytes = self._beside_bytes() + lane.persistent_bytes
            return max(0, min(lane.members[key].most_bytes, rest_bytes))
        return need.peak_bytes

    def has_room(self, need: Need | None, most_bytes: int) -> bool:
        """Whether somebody who asked now, as in `request`, would be admitted at once."""
        if self._alone or (self._line and not ORDERS[self.order].overtakes):
            return False
        if need is None:
            return min(most_bytes, self.capacity_bytes) <= self.free_bytes or (
                self._beside_bytes() > 0
            )
        return self._least_cost_bytes(need) <= self.free_bytes

    def _least_cost_bytes(self, need: Need) -> int:
        """In a lane of its own, or in one of those there are."""
        return min((need.peak_bytes, *(lane.cost_bytes(need) for lane in self._lanes.values())))

    def missing_bytes(self, key: GroupKey) -> int:
        """Room that has to become free until one in line fits; 0: only others are before it.

        Raises:
            KeyError: it is not in line.
        """
        need = self._line[key].need
        if need is None or self._alone:
            return 0
        return max(0, self._least_cost_bytes(need) - self.free_bytes)

    def request(
        self,
        key: GroupKey,
        need: Need | None,
        *,
        most_bytes: int | None = None,
        remaining_ns: float = float("inf"),
        served_ns: int = 0,
    ) -> Outcome:
        """Somebody new wants to come: it is let in, or stands in line.

        `need` None: it is not known, see rule 4; but no more than `most_bytes`, if that is said.

        Raises:
            NeverFitsError: it would not even fit alone.
            ValueError: it has asked before and not left.
        """
        if key in self._line or key in self._of:
            raise ValueError(f"group {key} has asked before")
        if need is not None and need.peak_bytes > self.capacity_bytes:
            raise NeverFitsError(
                f"it may use {size_of(need.peak_bytes)}, "
                f"{size_of(need.peak_bytes - self.capacity_bytes)} more than the gpu has; "
                "lower its memory or choose a larger gpu"
            )
        self._line[key] = Member(
            key=key,
            need=need,
            arrival=self._arrivals,
            most_bytes=min(most_bytes or self.capacity_bytes, self.capacity_bytes),
            remaining_ns=remaining_ns,
            served_ns=served_ns,
        )
        self._arrivals += 1
        self.changes += 1
        return Outcome(admitted=self._admit())

    def look(self) -> Outcome:
        """There may be more room than there was: less is reserved."""
        outcome = Outcome(admitted=self._admit(), begun=self._turns())
        self.changes += bool(outcome.admitted or outcome.begun)
        return outcome

    def want(self, key: GroupKey) -> Outcome:
        """A member wants to run an iteration, or another one: now, or when its lane comes to it."""
        lane = self._of[key]
        lane.want(lane.members[key])
        self.changes += 1
        return Outcome(begun=self._turns())

    def charge(self, key: GroupKey, spent_ns: int) -> None:
        """A member got so much GPU time, of an iteration that may go on."""
        member = self._of[key].members[key]
        member.served_ns += spent_ns
        member.remaining_ns = max(0, member.remaining_ns - spent_ns)

    def end(self, key: GroupKey) -> Outcome:
        """The running member's iteration ended: it holds its persistent bytes alone again.

        Raises:
            ValueError: it runs none.
        """
        lane = self._of[key]
        member = lane.members[key]
        if lane.running is not member:
            raise ValueError(f"group {key} runs no iteration")
        self.changes += 1
        lane.running = None
        self._place_alone()
        return Outcome(admitted=self._admit(), begun=self._turns())

    def learn(self, key: GroupKey, need: Need) -> Outcome:
        """What somebody needs turned out: from its memory curve, or because it holds more for good.

        Where a member takes memory within an iteration it must be between two, or never have taken
        turns, or need no less than before, and no more than `could_grow` says.
        """
        lane = self._of.get(key)
        self.changes += 1
        if lane is None:
            self._line[key].need = need
            return Outcome(admitted=self._admit())
        lane.members[key].need = need
        if lane not in self._alone and self.free_bytes < 0:
            self._leave_lane(lane, key)
        self._place_alone()
        return Outcome(admitted=self._admit(), begun=self._turns())

    def could_grow(self, key: GroupKey, need: Need) -> bool:
        """Whether there is room for this need of one that is admitted, where it is."""
        lane = self._of[key]
        known = lane.members[key].need
        if known is None or lane in self._alone:
            return need.peak_bytes <= self.limit_bytes(key)
        growth_bytes = max(0, need.ephemeral_bytes - lane.size_bytes)
        return need.persistent_bytes - known.persistent_bytes + growth_bytes <= self.free_bytes

    def leave(self, key: GroupKey) -> Outcome:
        """Somebody is gone, with all its memory, or does not want to come any more."""
        self.changes += 1
        if self._line.pop(key, None) is not None:
            return Outcome(admitted=self._admit())
        lane = self._of.pop(key)
        member = lane.members.pop(key)
        lane.wanting.pop(key, None)
        if lane.running is member:
            lane.running = None
        if lane in self._alone:
            self._alone.remove(lane)
        elif not lane.members:
            del self._lanes[lane.number]
        self._place_alone()
        return Outcome(admitted=self._admit(), begun=self._turns())

    def _in_order(self) -> list[Member]:
        return sorted(self._line.values(), key=ORDERS[self.order].rank)

    def _beside_bytes(self) -> int:
        """Not held for good by anybody."""
        lanes = (*self._lanes.values(), *self._alone)
        held_bytes = sum(lane.persistent_bytes for lane in lanes)
        return self.capacity_bytes - self.reserved_bytes - held_bytes

    def _admit(self) -> tuple[GroupKey, ...]:
        admitted: list[GroupKey] = []
        for member in self._in_order():
            if self._alone:
                break
            lane = self._place(member)
            if lane is not None:
                lane.join(member)
                self._of[member.key] = lane
                del self._line[member.key]
                admitted.append(member.key)
            elif not ORDERS[self.order].overtakes:
                break
        return tuple(admitted)

    def _place(self, member: Member) -> Lane | None:
        """A lane that there is room in, which is one of its own if there can be."""
        free_bytes = self.free_bytes
        if member.need is None:
            if member.most_bytes > free_bytes:
                return self._new_lane(is_alone=True) if self._beside_bytes() > 0 else None
            member.need = Need(persistent_bytes=member.most_bytes, ephemeral_bytes=0)
        need = member.need
        if need.peak_bytes <= free_bytes:
            return self._new_lane(is_alone=False)
        fitting = [lane for lane in self._lanes.values() if lane.cost_bytes(need) <= free_bytes]
        return min(
            fitting,
            key=lambda lane: (lane.cost_bytes(need), lane.size_bytes, lane.number),
            default=None,
        )

    def _new_lane(self, *, is_alone: bool) -> Lane:
        self._numbers += 1
        lane = Lane(number=self._numbers)
        if is_alone:
            self._alone.append(lane)
        else:
            self._lanes[lane.number] = lane
        return lane

    def _leave_lane(self, lane: Lane, key: GroupKey) -> None:
        """It holds more for good than there is room for: the others cannot go on beside it."""
        own = self._new_lane(is_alone=True)
        self._move(key, lane, own)
        if not lane.members:
            del self._lanes[lane.number]

    def _place_alone(self) -> None:
        """Let those go on like the others whose need is known by now, and fits."""
        for index, lane in reversed(list(enumerate(self._alone))):
            ((key, member),) = lane.members.items()
            need = member.need
            if need is None or (lane.running is not None and need.ephemeral_bytes):
                continue
            del self._alone[index]  # it is not counted twice
            place = self._place(member)
            if place is None:
                self._alone.insert(index, lane)
            else:
                self._move(key, lane, place)

    def _move(self, key: GroupKey, lane: Lane, to: Lane) -> None:
        to.join(lane.members.pop(key))
        self._of[key] = to
        if lane.wanting.pop(key, None) is not None:
            to.wanting[key] = to.members[key]
        if lane.running is to.members[key]:
            lane.running, to.running = None, to.members[key]

    def _turns(self) -> tuple[GroupKey, ...]:
        """Let iterations begin wherever one may."""
        begun: list[GroupKey] = []
        for lane in (*self._alone, *self._lanes.values()):
            if lane.running is None and lane.wanting and self._may_run(lane):
                lane.running = min(lane.wanting.values(), key=ORDERS[self.order].rank)
                del lane.wanting[lane.running.key]
                begun.append(lane.running.key)
        return tuple(begun)

    def _may_run(self, lane: Lane) -> bool:
        if not self._alone or not (lane.size_bytes or lane in self._alone):
            return True
        rivals = (*self._alone[1:], *(other for other in self._lanes.values() if other.size_bytes))
        return lane is self._alone[0] and all(other.running is None for other in rivals)
