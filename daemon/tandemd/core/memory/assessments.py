"""What was found when the memory of each island was last looked at, and how long that stands.

Rules
1. Findings stand until the grounds of one of the island's groups change (grounds.py), or who comes
   next there, or what the host has; at the latest until a time that they name themselves.
2. A change made because of the findings is news like any other: a look is followed by further looks
   until one finds the same as the one before.
3. A group that was reported on is noted, and only its grounds are compared. A caller that cannot
   tell whom a change concerns reports on everybody.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tandemd.core.islands import Island
from tandemd.core.memory.grounds import Grounds, grounds_of
from tandemd.core.memory.line import MemoryLine
from tandemd.core.memory.memories import has_own_memory
from tandemd.core.memory.swap_places import Place
from tandemd.core.model import Group, GroupKey


@dataclass(slots=True, kw_only=True, eq=False)
class Assessment:
    """The findings for one island. It is reviewed before turns are given, and decided after."""

    island: Island
    places: dict[GroupKey, list[Place]]
    grounds: dict[GroupKey, Grounds] = field(default_factory=dict)  # empty: not decided yet
    is_close: bool = True  # it matters who has the turn, and who comes next
    is_timed: bool = True  # and, of those with memory on the host, who wanted it last
    review_is_due: bool = True
    decision_is_due: bool = True
    reviewed_by: tuple[int, ...] = ()  # what the host had
    priced_by: int = -1  # value of `reorders`
    decided_by: tuple[int, ...] = ()  # what the host had
    ordered_by: int = -1  # value of `reorders`
    review_again_ns: int | None = None  # when findings may differ, even without news
    decide_again_ns: int | None = None
    look_again_ns: int | None = None  # the earliest of these two, and of when groups give memory up
    asleep: set[int] = field(default_factory=set)  # processes
    helped: set[int] = field(default_factory=set)
    has_places: bool = field(init=False)  # something there can be moved
    is_by_itself: bool = field(init=False)  # what is held there does not concern other islands

    def __post_init__(self) -> None:
        self.has_places = any(self.places.values())
        self.is_by_itself = all(map(has_own_memory, self.island.gpus))

    @property
    def reorders(self) -> int:
        """Changes whenever another group has the turn or comes next, where that matters."""
        return self.island.turns.reorders if self.is_close else 0

    def note(self) -> None:
        """Note that something is new."""
        self.review_is_due = self.decision_is_due = True

    def plan_look(self, now_ns: int) -> None:
        """Compute when findings may differ."""
        times = (grounds.released_at_ns for grounds in self.grounds.values())
        to_come = (at_ns for at_ns in times if at_ns is not None and at_ns > now_ns)
        released_ns = min(to_come, default=None)
        self.look_again_ns = earliest(self.review_again_ns, self.decide_again_ns, released_ns)


class Assessments:
    """The findings for all islands, and what is new. Belongs to the residency of memory."""

    def __init__(self, line: MemoryLine) -> None:
        self._line = line
        self._all: list[Assessment] = []
        self._home: dict[GroupKey, Assessment] = {}
        self._noted: dict[GroupKey, Group] = {}
        self._line_facts: tuple[object, ...] = ()

    def __iter__(self) -> Iterator[Assessment]:
        """Iterate over the assessments of all islands."""
        return iter(self._all)

    def of(self, key: GroupKey) -> Assessment:
        """Return the assessment of the group's island."""
        return self._home[key]

    @property
    def look_again_ns(self) -> int | None:
        """When findings may differ for any island."""
        return earliest(*(each.look_again_ns for each in self._all))

    def seat(self, islands: Iterable[Island], places: dict[int, Place]) -> None:
        """Start anew with these islands and these places, by process."""
        self._noted.clear()
        self._all = [
            Assessment(
                island=island,
                places={
                    group.key: [places[number] for number in group.processes if number in places]
                    for group in island.members
                },
            )
            for island in islands
        ]
        self._home = {key: each for each in self._all for key in each.places}

    def note(self, group: Group) -> None:
        """Note that a fact of the group changed."""
        self._noted[group.key] = group

    def note_all(self) -> None:
        """Note that a fact of any group may have changed."""
        for each in self._all:
            each.note()

    def note_time(self, now_ns: int) -> None:
        """Find what is new although nobody reported it."""
        line_facts = (self._line.refusals, *self._line.capacity_bytes.items())
        if line_facts != self._line_facts:
            self._line_facts = line_facts
            self.note_all()
        for each in self._all:
            if is_due(each.look_again_ns, now_ns):
                each.note()

    def take_notes(self, now_ns: int) -> None:
        """Find the islands for which the noted changes of groups are news."""
        for key, group in self._noted.items():
            each = self._home[key]
            before = each.grounds.get(key)
            if before is None:  # the review that was just made may have changed it
                each.review_is_due = True
                continue
            grounds = each.grounds[key] = self._grounds(group, each, now_ns)
            if grounds.memory != before.memory:
                each.note()
                if not each.is_by_itself:
                    self.note_all()
            elif grounds.standing != before.standing:
                each.decision_is_due = True
            elif grounds != before:
                each.plan_look(now_ns)
        self._noted.clear()

    def keep(self, assessment: Assessment, now_ns: int, *, is_close: bool, is_timed: bool) -> None:
        """Keep the decision just made for as long as its grounds hold."""
        were_of = (assessment.is_close, assessment.is_timed)
        assessment.is_close, assessment.is_timed = is_close, is_timed
        assessment.ordered_by = assessment.reorders
        if not assessment.grounds or were_of != (is_close, is_timed):
            members = assessment.island.members
            assessment.grounds = {g.key: self._grounds(g, assessment, now_ns) for g in members}
        assessment.plan_look(now_ns)

    def _grounds(self, group: Group, assessment: Assessment, now_ns: int) -> Grounds:
        if assessment.is_by_itself and not assessment.has_places:
            return Grounds()
        return grounds_of(
            group,
            assessment.island,
            tuple(self._line.requests_of(group)),
            is_close=assessment.is_close,
            is_timed=assessment.is_timed,
            now_ns=now_ns,
        )


def earliest(*times_ns: int | None) -> int | None:
    """Return the earliest of the times that are not None."""
    return min((at_ns for at_ns in times_ns if at_ns is not None), default=None)


def is_due(at_ns: int | None, now_ns: int) -> bool:
    """Tell whether there is such a time and it has come."""
    return at_ns is not None and now_ns >= at_ns
