"""Groups ordered by a figure; the first is known without looking at the rest.

A binary heap with lazy deletion: entries are never searched for, and a stale entry stays until it
comes up. A change costs O(log n), and finding the first costs O(1) most of the time.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from tandemd.core.model import Group, GroupKey

SLACK = 64  # stale entries beyond the live ones before they are swept out


class Line:
    """A queue, lowest figure first; ties in order of arrival."""

    def __init__(self) -> None:
        self._figures: dict[GroupKey, float] = {}
        self._heap: list[tuple[float, int, Group]] = []

    def put(self, group: Group, figure: float) -> bool:
        """Add the group or move it within the line; return whether anything changed."""
        if self._figures.get(group.key) == figure:
            return False
        self._figures[group.key] = figure
        heappush(self._heap, (figure, group.arrival, group))
        if len(self._heap) > 2 * len(self._figures) + SLACK:
            self._heap = [entry for entry in self._heap if self._is_live(entry)]
            heapify(self._heap)
        return True

    def drop(self, group: Group) -> bool:
        """Remove the group; return whether it was in the line."""
        return self._figures.pop(group.key, None) is not None

    def first(self, *, but: Group | None = None) -> Group | None:
        """The first group, or the first other than `but`."""
        heap, aside = self._heap, None
        while heap and (heap[0][2] is but or not self._is_live(heap[0])):
            entry = heappop(heap)
            if entry[2] is but and self._is_live(entry):
                aside = entry
        found = heap[0][2] if heap else None
        if aside is not None:
            heappush(heap, aside)
        return found

    def figure(self, group: Group) -> float | None:
        """The figure of a group in the line; None if it is not in it."""
        return self._figures.get(group.key)

    def in_order(self) -> list[Group]:
        """All groups, first to last."""
        live = sorted(filter(self._is_live, self._heap), key=lambda entry: entry[:2])
        return list({group.key: group for _, _, group in live}.values())

    def _is_live(self, entry: tuple[float, int, Group]) -> bool:
        return self._figures.get(entry[2].key) == entry[0]
