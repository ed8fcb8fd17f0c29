"""Which groups compete: islands, sets of GPUs that some group ties together.

A group is never split, so a group on GPUs 0 and 1 needs its turn on both at once. Two groups that
share no GPU, not even through other groups, never wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tandemd.core.model import Group, Options
from tandemd.core.policies.policy import Policy
from tandemd.core.turns.turns import Turns


@dataclass(frozen=True, slots=True, kw_only=True)
class Island:
    """An island, its groups and their turns."""

    gpus: frozenset[int]
    members: list[Group]
    turns: Turns
    policy: Policy
    options: Options

    def has_turn(self, group: Group) -> bool:
        """Tell whether the group can have its memory without waiting for others."""
        turns = self.turns
        on_turn = (turns.holder, turns.companion, turns.third)
        return self.takes_no_turns(group) or group.key in on_turn

    def takes_no_turns(self, group: Group) -> bool:
        """Tell whether its gate is open whatever others do."""
        return group.undrainable or self.policy.always_open(group)


def islands_of(groups: Iterable[Group]) -> dict[frozenset[int], list[Group]]:
    """Map the GPUs of each island to its groups in order of arrival, if they have processes."""
    islands: list[tuple[set[int], list[Group]]] = []
    for group in groups:
        if not group.processes:
            continue
        gpus, members = set(group.gpus), [group]
        apart = []
        for other_gpus, others in islands:
            if gpus & other_gpus:
                gpus |= other_gpus
                members += others
            else:
                apart.append((other_gpus, others))
        islands = [*apart, (gpus, members)]
    return {frozenset(gpus): sorted(members, key=lambda g: g.arrival) for gpus, members in islands}
