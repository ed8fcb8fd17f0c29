"""Admission by lanes: decides who may come onto a GPU so that all who are on it can finish.

After Salus (Yu and Chowdhury, MLSys 2020). A member, which is a group, holds its *persistent* bytes
as long as it is on the GPU, and within an iteration at most its *ephemeral* bytes on top. Members
of one lane take turns, an iteration each; lanes run side by side. A lane is as large as the largest
ephemeral part of its members, and

    persistent bytes of all members + sizes of all lanes <= capacity

always holds. So nobody on the GPU ever waits for memory, and nobody who waits has any:
docs/admission.md proves that nothing can deadlock.

1. A newcomer gets a lane of its own if there is room for all that it may use. Otherwise it joins
   the lane that must grow least, if there is room for the growth. Otherwise it waits in line, with
   nothing on the GPU.
2. The line is searched, in its order, when a member comes or leaves. In an order that forbids
   overtaking, nobody goes before the first.
3. A lane belongs to its running member until the iteration ends; then it goes to the first, in the
   same order, of the members that want it. Service from before a member joined the lane does not
   count there, nor does what others got while it wanted nothing.
4. If only a newcomer's limit is known, which may be the capacity, but not its need, it is admitted
   if that limit is free, and all of it counts as persistent. Otherwise it is admitted *alone*:
   while it is, nobody else is admitted or begins an iteration, and it begins when all others are
   between theirs. It may use everything that they do not hold for good. Once its need is known it
   continues like the others if there is room for that, and otherwise stays alone until it leaves.

Sizes are promises. A member that uses more than it promised would break the condition for all, so
its memory limit is `limit_bytes`. Belongs to one thread.
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
    ephemeral_bytes: int  # at most, on top, within an iteration

    @property
    def peak_bytes(self) -> int:
        """The most it may ever hold."""
        return self.persistent_bytes + self.ephemeral_bytes

    def covers(self, other: Need) -> bool:
        """Tell whether it is no less than another need in both parts."""
        return (
            self.persistent_bytes >= other.persistent_bytes
            and self.ephemeral_bytes >= other.ephemeral_bytes
        )


@dataclass(slots=True, kw_only=True, eq=False)
class Member:
    """A group that asked for admission."""

    key: GroupKey
    need: Need | None  # None: not known yet
    arrival: int  # 0, 1, 2.. in order of asking
    most_bytes: int  # its limit, if its need is not known
    remaining_ns: float  # GPU time until it is done; infinite = not known
    served_ns: int = 0  # in line: so far; in a lane: by that lane's clock

    @property
    def persistent_bytes(self) -> int:
        """Persistent bytes; 0 if not known."""
        return 0 if self.need is None else self.need.persistent_bytes

    @property
    def ephemeral_bytes(self) -> int:
        """Ephemeral bytes; 0 if not known."""
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
        """Persistent bytes of all its members."""
        return sum(member.persistent_bytes for member in self.members.values())

    def join(self, member: Member) -> None:
        """Add a member, level with the least served: earlier service gives it no turns."""
        others = self.members.values()
        member.served_ns = min((one.served_ns for one in others), default=member.served_ns)
        self.members[member.key] = member

    def want(self, member: Member) -> None:
        """Note that a member wants a turn; turns that it let pass before are not made up for."""
        active = [*self.wanting.values(), *([self.running] if self.running else [])]
        least_ns = min((one.served_ns for one in active), default=0)
        member.served_ns = max(member.served_ns, least_ns)
        self.wanting[member.key] = member

    def cost_bytes(self, need: Need) -> int:
        """Room that a further member would take."""
        growth_bytes = max(0, need.ephemeral_bytes - self.size_bytes)
        return need.persistent_bytes + growth_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Order of the line, and whether others may be admitted while the first does not fit."""

    rank: Callable[[Member], tuple[float, int]]  # lowest first
    overtakes: bool


ORDERS = {
    "fifo": Order(rank=lambda member: (0, member.arrival), overtakes=False),
    # Shortest remaining time, least service so far, largest; all of them let smaller members pass.
    "srtf": Order(rank=lambda member: (member.remaining_ns, member.arrival), overtakes=True),
    "fair": Order(rank=lambda member: (member.served_ns, member.arrival), overtakes=True),
    "pack": Order(rank=lambda member: (-member.peak_bytes, member.arrival), overtakes=True),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of an event, in order."""

    admitted: tuple[GroupKey, ...] = ()
    begun: tuple[GroupKey, ...] = ()  # may run an iteration now


class Lanes:
    """Admission to one GPU."""

    def __init__(self, *, capacity_bytes: int, order: str = "fifo") -> None:
        """`order` is one of ORDERS."""
        self.capacity_bytes = capacity_bytes
        self.reserved_bytes = 0  # part that belongs to no member: contexts, and memory of others
        self.order = order  # one of ORDERS; may be changed
        self.changes = 0  # count of changes in who is where, needs what, and may run
        self._arrivals = 0
        self._numbers = 0
        self._line: dict[GroupKey, Member] = {}
        self._lanes: dict[int, Lane] = {}
        self._alone: list[Lane] = []  # rule 4: one member each; the first may run
        self._of: dict[GroupKey, Lane] = {}

    @property
    def free_bytes(self) -> int:
        """Bytes neither held for good nor needed by a lane."""
        lanes_bytes = sum(lane.size_bytes for lane in self._lanes.values())
        return self._beside_bytes() - lanes_bytes

    @property
    def waiting(self) -> list[GroupKey]:
        """The line, first to last."""
        return [member.key for member in self._in_order()]

    @property
    def lanes(self) -> list[frozenset[GroupKey]]:
        """The members of each lane, oldest lane first; without those that are alone."""
        return [frozenset(lane.members) for lane in self._lanes.values()]

    @property
    def alone(self) -> list[GroupKey]:
        """Members that run iterations while nobody else does; the first one may."""
        return [key for lane in self._alone for key in lane.members]

    def __contains__(self, key: GroupKey) -> bool:
        """Tell whether it has asked and not left."""
        return key in self._line or key in self._of

    def is_running(self, key: GroupKey) -> bool:
        """Tell whether it may run an iteration now."""
        lane = self._of.get(key)
        return lane is not None and lane.running is not None and lane.running.key == key

    def is_wanting(self, key: GroupKey) -> bool:
        """Tell whether it waits for its turn."""
        lane = self._of.get(key)
        return lane is not None and key in lane.wanting

    def is_admitted(self, key: GroupKey) -> bool:
        """Tell whether it may have anything on the GPU."""
        return key in self._of

    def need_of(self, key: GroupKey) -> Need | None:
        """What it may use; None: not known."""
        lane = self._of.get(key)
        return (self._line if lane is None else lane.members)[key].need

    def running_with(self, key: GroupKey) -> GroupKey | None:
        """The member whose iteration it must wait for; None: none."""
        lane = self._of[key]
        rivals = [lane]
        if self._alone:
            rivals = [self._alone[0], *self._lanes.values()] if lane in self._alone else self._alone
        found = (other.running for other in rivals if other.running and other.running.key != key)
        return next((member.key for member in found), None)

    def takes_turns(self, key: GroupKey) -> bool:
        """Tell whether its iterations must end before others can begin theirs."""
        return len(self._of[key].members) > 1 or bool(self._alone)

    def limit_bytes(self, key: GroupKey) -> int:
        """The most that an admitted member may hold."""
        lane = self._of[key]
        need = lane.members[key].need
        if need is None or lane in self._alone:
            rest_bytes = self._beside_bytes() + lane.persistent_bytes
            return max(0, min(lane.members[key].most_bytes, rest_bytes))
        return need.peak_bytes

    def has_room(self, need: Need | None, most_bytes: int) -> bool:
        """Tell whether a newcomer would be admitted at once; arguments as in `request`."""
        if self._alone or (self._line and not ORDERS[self.order].overtakes):
            return False
        if need is None:
            return min(most_bytes, self.capacity_bytes) <= self.free_bytes or (
                self._beside_bytes() > 0
            )
        return self._least_cost_bytes(need) <= self.free_bytes

    def _least_cost_bytes(self, need: Need) -> int:
        """Room needed in a lane of its own or in the cheapest existing lane."""
        return min((need.peak_bytes, *(lane.cost_bytes(need) for lane in self._lanes.values())))

    def missing_bytes(self, key: GroupKey) -> int:
        """Room that must become free before one in line fits; 0: only others are ahead of it.

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
        """Ask for admission: the newcomer is admitted or stands in line.

        `need` None: not known, see rule 4; but at most `most_bytes`, if that is given.

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
                "lower its memory, or choose a larger gpu"
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
        """Check again after reserved memory shrank: there may be more room."""
        outcome = Outcome(admitted=self._admit(), begun=self._turns())
        self.changes += bool(outcome.admitted or outcome.begun)
        return outcome

    def want(self, key: GroupKey) -> Outcome:
        """Note that a member wants an iteration: now, or when its lane comes to it."""
        lane = self._of[key]
        lane.want(lane.members[key])
        self.changes += 1
        return Outcome(begun=self._turns())

    def charge(self, key: GroupKey, spent_ns: int) -> None:
        """Charge a member GPU time, possibly of an iteration still in progress."""
        member = self._of[key].members[key]
        member.served_ns += spent_ns
        member.remaining_ns = max(0, member.remaining_ns - spent_ns)

    def end(self, key: GroupKey) -> Outcome:
        """End the running member's iteration: it holds only its persistent bytes again.

        Raises:
            ValueError: it runs no iteration.
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
        """Set a need that became known: from its memory curve, or because it holds more for good.

        A member that takes memory within iterations must be between two of them, or never have
        taken turns, or need no less than before and no more than `could_grow` allows.
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
        """Tell whether an admitted member's new need fits where it is."""
        lane = self._of[key]
        known = lane.members[key].need
        if known is None or lane in self._alone:
            return need.peak_bytes <= self.limit_bytes(key)
        growth_bytes = max(0, need.ephemeral_bytes - lane.size_bytes)
        return need.persistent_bytes - known.persistent_bytes + growth_bytes <= self.free_bytes

    def leave(self, key: GroupKey) -> Outcome:
        """Remove a group that is gone with all its memory, or no longer wants to come."""
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
        """Bytes that nobody holds for good."""
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
        """Find a lane with room for the member: one of its own if possible."""
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
        """Put a member alone: it holds too much for good for others to continue beside it."""
        own = self._new_lane(is_alone=True)
        self._move(key, lane, own)
        if not lane.members:
            del self._lanes[lane.number]

    def _place_alone(self) -> None:
        """Move members that are alone into lanes once their need is known and fits."""
        for index, lane in reversed(list(enumerate(self._alone))):
            ((key, member),) = lane.members.items()
            need = member.need
            if need is None or (lane.running is not None and need.ephemeral_bytes):
                continue
            del self._alone[index]  # so that it is not counted twice
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
        """Begin iterations wherever one may begin."""
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
