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
   order, of those who want it.

Sizes are promises: who may use more than it said breaks all of it, so a member's memory limit is
its peak. Belongs to one thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tandemd.core.errors import NeverFitsError
from tandemd.core.model import GroupKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Device memory in bytes, contexts and pools included; 0 or more each."""

    persistent_bytes: int  # for as long as it is on the GPU
    ephemeral_bytes: int  # at most, besides, within an iteration

    @property
    def peak_bytes(self) -> int:
        """The most it may ever hold."""
        return self.persistent_bytes + self.ephemeral_bytes


@dataclass(slots=True, kw_only=True, eq=False)
class Member:
    """One who asked to come."""

    key: GroupKey
    need: Need
    arrival: int  # 0, 1, 2.. in order of asking
    remaining_ns: float  # GPU time until it is done; infinite = not known
    served_ns: int = 0


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
        return max((m.need.ephemeral_bytes for m in self.members.values()), default=0)

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
    "pack": Order(rank=lambda member: (-member.need.peak_bytes, member.arrival), overtakes=True),
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
        self._order = ORDERS[order]
        self._arrivals = 0
        self._numbers = 0
        self._line: dict[GroupKey, Member] = {}
        self._lanes: dict[int, Lane] = {}
        self._of: dict[GroupKey, Lane] = {}

    @property
    def free_bytes(self) -> int:
        """Neither held for good nor needed by a lane."""
        persistent_bytes = sum(
            member.need.persistent_bytes
            for lane in self._lanes.values()
            for member in lane.members.values()
        )
        lanes_bytes = sum(lane.size_bytes for lane in self._lanes.values())
        return self.capacity_bytes - persistent_bytes - lanes_bytes

    @property
    def waiting(self) -> list[GroupKey]:
        """Who is in line, the first one first."""
        return [member.key for member in self._in_order()]

    @property
    def lanes(self) -> list[frozenset[GroupKey]]:
        """Who shares a lane, the oldest lane first."""
        return [frozenset(lane.members) for lane in self._lanes.values()]

    def missing_bytes(self, key: GroupKey) -> int:
        """Room that has to become free until one in line fits; 0: only others are before it.

        Raises:
            KeyError: it is not in line.
        """
        need = self._line[key].need
        costs = (need.peak_bytes, *(lane.cost_bytes(need) for lane in self._lanes.values()))
        return max(0, min(costs) - self.free_bytes)

    def request(self, key: GroupKey, need: Need, *, remaining_ns: float = float("inf")) -> Outcome:
        """Somebody new wants to come: it is let in, or stands in line.

        Raises:
            NeverFitsError: it would not even fit alone.
            ValueError: it has asked before and not left.
        """
        if key in self._line or key in self._of:
            raise ValueError(f"group {key} has asked before")
        if need.peak_bytes > self.capacity_bytes:
            raise NeverFitsError(
                f"it may use {need.peak_bytes} bytes, the gpu has {self.capacity_bytes}; "
                "lower its memory or choose a larger gpu"
            )
        self._line[key] = Member(
            key=key, need=need, arrival=self._arrivals, remaining_ns=remaining_ns
        )
        self._arrivals += 1
        return Outcome(admitted=self._admit())

    def want(self, key: GroupKey) -> Outcome:
        """A member wants to run an iteration, or another one: now, or when its lane comes to it."""
        lane = self._of[key]
        lane.wanting[key] = lane.members[key]
        return Outcome(begun=self._turn(lane))

    def end(self, key: GroupKey, *, spent_ns: int = 0) -> Outcome:
        """The running member's iteration ended: it holds its persistent bytes alone again.

        Raises:
            ValueError: it runs none.
        """
        lane = self._of[key]
        member = lane.members[key]
        if lane.running is not member:
            raise ValueError(f"group {key} runs no iteration")
        member.served_ns += spent_ns
        member.remaining_ns = max(0, member.remaining_ns - spent_ns)
        lane.running = None
        return Outcome(begun=self._turn(lane))

    def leave(self, key: GroupKey) -> Outcome:
        """Somebody is gone, with all its memory, or does not want to come any more."""
        if self._line.pop(key, None) is not None:
            return Outcome(admitted=self._admit())
        lane = self._of.pop(key)
        member = lane.members.pop(key)
        lane.wanting.pop(key, None)
        if lane.running is member:
            lane.running = None
        if not lane.members:
            del self._lanes[lane.number]
        return Outcome(begun=self._turn(lane), admitted=self._admit())

    def _in_order(self) -> list[Member]:
        return sorted(self._line.values(), key=self._order.rank)

    def _admit(self) -> tuple[GroupKey, ...]:
        admitted = []
        for member in self._in_order():
            lane = self._place(member.need)
            if lane is not None:
                self._lanes.setdefault(lane.number, lane).members[member.key] = member
                self._of[member.key] = lane
                del self._line[member.key]
                admitted.append(member.key)
            elif not self._order.overtakes:
                break
        return tuple(admitted)

    def _place(self, need: Need) -> Lane | None:
        free_bytes = self.free_bytes
        if need.peak_bytes <= free_bytes:
            self._numbers += 1
            return Lane(number=self._numbers)
        fitting = [lane for lane in self._lanes.values() if lane.cost_bytes(need) <= free_bytes]
        return min(
            fitting,
            key=lambda lane: (lane.cost_bytes(need), lane.size_bytes, lane.number),
            default=None,
        )

    def _turn(self, lane: Lane) -> tuple[GroupKey, ...]:
        if lane.running is not None or not lane.wanting:
            return ()
        lane.running = min(lane.wanting.values(), key=self._order.rank)
        del lane.wanting[lane.running.key]
        return (lane.running.key,)
