"""Which groups compete: islands of GPUs that some group ties together.

A group is never split, so a group on GPUs 0 and 1 needs its turn on both at once. Two groups that
share no GPU, not even through others, never wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterable

from tandemd.core.model import Group


def islands_of(groups: Iterable[Group]) -> dict[frozenset[int], list[Group]]:
    """GPUs of each island -> its groups in order of arrival, without those without processes."""
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
