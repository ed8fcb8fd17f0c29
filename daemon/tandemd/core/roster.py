"""The groups of one island, indexed for decisions: kept up to date, never searched.

A group *may claim* unless it is paused, exempt or undrainable; it *takes turns* if it also is not
dozing. Every other index lists the groups with some property. Only `Turns` writes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Set

from tandemd.core.line import Line
from tandemd.core.model import Group, GroupKey
from tandemd.core.policies.policy import Policy


class Roster:
    """The groups on the island, by state."""

    def __init__(self) -> None:
        self.members: dict[GroupKey, Group] = {}  # in order of arrival
        self.lines: dict[int, Line] = {}  # by tier: groups that wait for the turn, best first
        self.held = Line()  # groups that wait at a closed gate, longest first
        self.rising = Line()  # held groups to look at again, by when
        self.waking = Line()  # those of `rising` for which a decision is due then
        self._tiers: dict[GroupKey, int] = {}  # of all groups that may claim
        # By tier: groups that may claim and have work.
        self._wanting: dict[int, dict[GroupKey, Group]] = {}
        self._quiet: dict[GroupKey, Group] = {}
        self._busy: dict[GroupKey, Group] = {}
        self._unused: dict[GroupKey, Group] = {}
        self._draining: dict[GroupKey, Group] = {}
        self._reopened: dict[GroupKey, Group] = {}
        self._served_before_ns: dict[GroupKey, int] = {}

    def seat(self, members: Iterable[Group], policy: Policy) -> None:
        """Start over with these groups, in order of arrival."""
        self.members = {group.key: group for group in members}
        self._tiers = {
            key: policy.tier(group)
            for key, group in self.members.items()
            if not (group.is_closed or group.undrainable or policy.always_open(group))
        }
        self._wanting = {tier: {} for tier in self._tiers.values()}
        self.lines = {tier: Line() for tier in self._wanting}
        self.held, self.rising, self.waking = Line(), Line(), Line()
        for kept in (self._quiet, self._busy, self._unused, self._draining, self._reopened):
            kept.clear()
        before_ns = self._served_before_ns
        self._served_before_ns = {
            key: before_ns.get(key, self.members[key].served_ns) for key in self._tiers
        }
        for group in self.members.values():
            self.place(group)

    def rank(self, group: Group, policy: Policy) -> bool:
        """Index a group by its work, which may have changed; return whether its line changed."""
        _keep(self._busy, group, wanted=group.busy)
        tier = self._tiers.get(group.key)
        if tier is None:
            return False
        _keep(self._quiet, group, wanted=not group.wants)
        _keep(self._wanting[tier], group, wanted=group.wants)
        if group.wants and not group.dozing:
            return self.lines[tier].put(group, policy.order(group))
        self.held.drop(group)
        return self.lines[tier].drop(group)

    def place(self, group: Group) -> None:
        """Index a group by its gate, which may have moved."""
        key = group.key
        claims = key in self._tiers
        waits = group.open and group.wants and not group.busy and not group.dozing
        _keep(self._unused, group, wanted=waits)
        _keep(self._draining, group, wanted=not group.drained)
        _keep(self._reopened, group, wanted=claims and group.reopened_steps is not None)
        if claims and group.hold_since_ns is not None:
            self.held.put(group, group.hold_since_ns)
        else:
            self.held.drop(group)

    def look_again(self, group: Group, at_ns: int | None, *, wakes: bool) -> None:
        """Have a waiting group looked at again from `at_ns` on; None: no need.

        `wakes`: a decision is due at that time, instead of whenever the next one is made.
        """
        waits = group.key in self._tiers and group.hold_since_ns is not None
        for line, wanted in ((self.rising, waits), (self.waking, waits and wakes)):
            if at_ns is not None and wanted:
                line.put(group, at_ns)
            else:
                line.drop(group)

    def risen(self, now_ns: int) -> Iterator[Group]:
        """Groups due to be looked at again by now, each only once."""
        while (group := self.rising.first()) is not None:
            if (self.rising.figure(group) or 0) > now_ns:
                break
            self.rising.drop(group)
            yield group

    def next_rise_ns(self, *, but: Group) -> int | None:
        """When to look again at the first waiting group other than `but`; None: not at all."""
        first = self.waking.first(but=but)
        return None if first is None else int(self.waking.figure(first) or 0)

    def exempt(self, group: Group) -> None:
        """Take away the group's right to claim."""
        self._quiet.pop(group.key, None)
        tier = self._tiers.pop(group.key)
        self._wanting[tier].pop(group.key, None)
        self.lines[tier].drop(group)
        del self._served_before_ns[group.key]
        if tier not in self._tiers.values():
            del self._wanting[tier], self.lines[tier]

    def take_served(self, changed: Iterable[Group]) -> dict[int, int]:
        """GPU time charged to each tier since the last look, in nanoseconds."""
        served_ns: dict[int, int] = {}
        for group in changed:
            tier = self._tiers.get(group.key)
            if tier is not None:
                gained_ns = group.served_ns - self._served_before_ns[group.key]
                served_ns[tier] = served_ns.get(tier, 0) + gained_ns
                self._served_before_ns[group.key] = group.served_ns
        return served_ns

    @property
    def tiers(self) -> Set[int]:
        """Tiers in which some group may claim."""
        return self._wanting.keys()

    @property
    def quiet(self) -> Iterable[Group]:
        """Groups that may claim and have no work; only their gates matter."""
        return self._quiet.values()

    @property
    def wanting(self) -> Iterable[Group]:
        """Groups that may claim and have work."""
        return (group for groups in self._wanting.values() for group in groups.values())

    @property
    def busy(self) -> Iterable[Group]:
        """Groups with work on the GPU."""
        return self._busy.values()

    @property
    def unused(self) -> Iterable[Group]:
        """Groups whose gate is open but that only wait."""
        return self._unused.values()

    @property
    def draining(self) -> Collection[Group]:
        """Groups whose gate closed on work that has not ended yet."""
        return self._draining.values()

    @property
    def reopened(self) -> Collection[Group]:
        """Groups whose gate opened again because their work did not drain."""
        return self._reopened.values()

    def tier(self, group: Group) -> int:
        """The tier of a group that may claim."""
        return self._tiers[group.key]

    def of_tier(self, tier: int) -> list[Group]:
        """Groups of a tier that may claim."""
        return [self.members[key] for key, theirs in self._tiers.items() if theirs == tier]

    def may_claim(self, group: Group) -> bool:
        """Tell whether the group may claim the turn."""
        return group.key in self._tiers

    def takes_turns(self, group: Group) -> bool:
        """Tell whether the group may claim and is not dozing."""
        return group.key in self._tiers and not group.dozing

    def wants(self, tier: int) -> bool:
        """Tell whether a group of the tier has work."""
        return bool(self._wanting.get(tier))

    def someone_wants(self, *, but: Group) -> bool:
        """Tell whether a group other than `but` has work."""
        return any(len(groups) > (but.key in groups) for groups in self._wanting.values())


def _keep(kept: dict[GroupKey, Group], group: Group, *, wanted: bool) -> None:
    if wanted:
        kept[group.key] = group
    else:
        kept.pop(group.key, None)
