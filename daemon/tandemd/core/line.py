"""Groups in order of one figure: the first is known without a look at the rest.

A binary heap whose entries are never searched for: what a change makes stale is left where it is
and dropped when it comes up (lazy deletion), so that a change costs O(log n) and asking for the
first costs O(1) most of the time.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from tandemd.core.model import Group, GroupKey

SLACK = 64  # stale entries beyond the living ones before they are swept out


class Line:
    """Lowest figure first; equals in order of arrival."""

    def __init__(self) -> None:
        self._figures: dict[GroupKey, float] = {}
        self._heap: list[tuple[float, int, Group]] = []

    def put(self, group: Group, figure: float) -> bool:
        """Stand in line, or move within it; whether it does."""
        if self._figures.get(group.key) == figure:
            return False
        self._figures[group.key] = figure
        heappush(self._heap, (figure, group.arrival, group))
        if len(self._heap) > 2 * len(self._figures) + SLACK:
            self._heap = [entry for entry in self._heap if self._is_live(entry)]
            heapify(self._heap)
        return True

    def drop(self, group: Group) -> bool:
        """Leave the line; whether it was in it."""
        return self._figures.pop(group.key, None) is not None

    def first(self, *, but: Group | None = None) -> Group | None:
        """The first, or the first other than `but`."""
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
        """Of a group that stands in line; None: it does not."""
        return self._figures.get(group.key)

    def in_order(self) -> list[Group]:
        """All of them, first to last."""
        live = sorted(filter(self._is_live, self._heap), key=lambda entry: entry[:2])
        return list({group.key: group for _, _, group in live}.values())

    def _is_live(self, entry: tuple[float, int, Group]) -> bool:
        return self._figures.get(entry[2].key) == entry[0]
