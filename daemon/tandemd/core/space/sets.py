"""Places jobs on the groups of one fixed split of a GPU's SMs.

Each job that asks for groups gets some of its own, next to each other. Jobs that ask for none share
what is left, in one contiguous piece. If more is asked for than there is, all get proportionally
less, but at least one group each; if there are more jobs than groups, those that came last share.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

MOST_STEPS = 64  # of a decision, on the thread that all jobs wait for; beyond, more jobs move


@dataclass(frozen=True, slots=True)
class Span:
    """Neighbouring groups."""

    first: int
    count: int  # 1 or more

    @property
    def end(self) -> int:
        """The first group after the span."""
        return self.first + self.count

    def overlap(self, other: Span) -> int:
        """Return how many groups are in both."""
        return max(0, min(self.end, other.end) - max(self.first, other.first))


def fit(wanted: Mapping[str, int], groups: int) -> dict[str, int]:
    """Return how many groups each job gets; 0: it shares what is left.

    Jobs come in order of arrival. While some job shares, at least one group is left.
    """
    asking = {job: count for job, count in wanted.items() if count > 0}
    most = max(1, groups - (len(asking) < len(wanted)))  # jobs that can have groups of their own
    if len(asking) > most:
        most = max(1, groups - 1)
    heard = dict(list(asking.items())[: most if groups > 1 else 0])
    room = groups - (len(heard) < len(wanted))
    asked = sum(heard.values())
    if asked <= room:
        return {job: heard.get(job, 0) for job in wanted}
    spare = room - len(heard)  # beyond one for each
    parts = {job: spare * (count - 1) / (asked - len(heard)) for job, count in heard.items()}
    given = {job: 1 + int(part) for job, part in parts.items()}
    by_loss = sorted(heard, key=lambda job: int(parts[job]) - parts[job])  # stable: first come
    for job in by_loss[: room - sum(given.values())]:
        given[job] += 1
    return {job: given.get(job, 0) for job in wanted}


def place(wanted: Mapping[str, int], held: Mapping[str, Span], groups: int) -> dict[str, Span]:
    """Return where each job is to be, moving few; spans are disjoint unless jobs share.

    Args:
        wanted: groups by job, in order of arrival; 0 = a share of what is left.
        held: where jobs are now; new jobs are not in it.
        groups: how many there are, 1 or more.
    """
    sizes = fit(wanted, groups)
    sharing = [job for job, size in sizes.items() if size == 0]
    own = {job: size for job, size in sizes.items() if size}
    before = {job: held[job] for job in own if job in held}
    rest = groups - sum(own.values())
    if sharing:
        own[""] = rest
        spans = [held[job] for job in sharing if job in held]
        before |= {"": spans[0]} if spans else {}
    spans_by_job = _fewest_moves(own, before, groups)
    shared = spans_by_job.pop("", None)
    found = spans_by_job | (dict.fromkeys(sharing, shared) if shared else {})
    return {job: found[job] for job in wanted}


def _fewest_moves(
    sizes: Mapping[str, int], held: Mapping[str, Span], groups: int
) -> dict[str, Span]:
    could_stay = [job for job, size in sizes.items() if job in held and held[job].count == size]
    search = _Search(sizes, held, groups)
    for moves in range(len(could_stay) + 1):
        for moving in combinations(reversed(could_stay), moves):  # the newest job moves first
            staying = {job: held[job] for job in could_stay if job not in moving}
            if search.succeeds(staying):
                return search.spans
            if search.is_over:
                return _in_a_row(sizes, held)
    return _in_a_row(sizes, held)


def are_apart(spans: Iterable[Span], groups: int) -> bool:
    """Tell whether no two spans overlap and all are within `groups`."""
    ends = [0]
    for span in sorted(spans, key=lambda span: span.first):
        if span.first < ends[-1]:
            return False
        ends.append(span.end)
    return ends[-1] <= groups


def _in_a_row(sizes: Mapping[str, int], held: Mapping[str, Span]) -> dict[str, Span]:
    spans, first = {}, 0
    for job in sorted(
        sizes, key=lambda job: (job not in held, held[job].first if job in held else 0)
    ):
        spans[job] = Span(first, sizes[job])
        first += sizes[job]
    return spans


class _Search:
    """A depth-first search for room beside jobs that stay; `MOST_STEPS` limits all its tries."""

    def __init__(self, sizes: Mapping[str, int], held: Mapping[str, Span], groups: int) -> None:
        self.spans: dict[str, Span] = {}
        self._sizes, self._held, self._groups = sizes, held, groups
        self._steps = 0

    @property
    def is_over(self) -> bool:
        """True once the search has used up its steps."""
        return self._steps >= MOST_STEPS

    def succeeds(self, staying: Mapping[str, Span]) -> bool:
        self._steps += 1
        if not are_apart(staying.values(), self._groups):
            return False
        self.spans = dict(staying)
        others = [job for job in self._sizes if job not in staying]
        return self._finds_room(sorted(others, key=lambda job: -self._sizes[job]))

    def _finds_room(self, jobs: list[str]) -> bool:
        if not jobs:
            return True
        if self.is_over:
            return False
        self._steps += 1
        job, *others = jobs
        for span in self._candidates(job):
            self.spans[job] = span
            if self._finds_room(others):
                return True
            del self.spans[job]
        return False

    def _candidates(self, job: str) -> list[Span]:
        """Return spans for a job: nearest to where it is now first, then the tightest fits."""
        size, before = self._sizes[job], self._held.get(job)
        found: dict[Span, int] = {}
        for gap in self._gaps():
            if gap.count < size:
                continue
            firsts = [gap.first, gap.end - size]
            if before is not None:
                firsts += [before.first, before.end - size]
            for first in firsts:
                span = Span(first, size)
                if gap.overlap(span) == size:
                    found.setdefault(span, gap.count)
        near = {span: before.overlap(span) if before else 0 for span in found}
        return sorted(found, key=lambda span: (-near[span], found[span], span.first))

    def _gaps(self) -> Iterator[Span]:
        first = 0
        for span in sorted(self.spans.values(), key=lambda span: span.first):
            if span.first > first:
                yield Span(first, span.first - first)
            first = span.end
        if first < self._groups:
            yield Span(first, self._groups - first)
