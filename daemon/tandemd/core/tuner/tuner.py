"""The size of each job with an objective, controlled by feedback from what its requests take.

After GSLICE (Dhakal et al., SoCC 2020): the residual r = (SLO - p99) / SLO decides, with a dead
band, and a window makes at most one change. What changes is a *size*: SMs where the GPU is divided
in space, a share of the time where jobs take turns.

Rules
1. A window ends after `window_ns` if it has `LEAST_REQUESTS` or more. It ends early only if its p99
   is certain to miss the objective, which a few requests can show where many more are usual. After
   a change all windows start anew.
2. If r < 0, the job that misses by most grows by one step, never beyond its knee; but not while its
   requests take less and less, as when a backlog is being worked off. If r > 2 * band for
   `CALM_WINDOWS` in a row, and nobody can grow, the job with most to spare shrinks by one step. So
   r settles within `band` of `band`: at nine tenths of the objective, not at the objective.
3. A size that missed is remembered, and the job does not shrink to it again. So under constant load
   there are at most as many changes as there are sizes, and then none.
4. What is remembered holds for the phase, policy, neighbours and load in which it was found. If one
   of these changes, it is forgotten or, for a phase, put aside: a phase that comes again, and
   lasts, gets the size it ended with. The load has changed if in the same phase and with the *same*
   size another number of requests is answered, in two windows in a row. With another size, the size
   may be the cause; and once in many windows it is chance.
5. What a person fixed (`--sm`) stays; the tuner says what it would do.
6. Jobs that share one size shrink together: when all of them may.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from tandemd.core.tuner.latency import is_another_load, percentile_ns

LEAST_REQUESTS = 20  # a percentile of fewer says nothing
LEAST_OF_MANY = 6  # where more are usual; with fewer, a falling trend does not show
CALM_WINDOWS = 3
UNUSUAL = 50  # if the usual number is not known, this many times as many as now may still come
MOST_REQUESTS = 4096  # of a window; more do not improve its percentile
FALLING = 0.9  # of what requests took at first; chance does not explain less at the end of a window
MOST_PHASES = 16  # of a job are told apart


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of the tuner."""

    window_ns: int = 2_000_000_000
    band: float = 0.1  # of the objective


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The size a job has, and the sizes it may have."""

    now: int
    least: int
    most: int  # its knee, or all that nobody else was promised
    step: int
    is_fixed: bool = False  # by a person, or because it cannot change while the job runs
    together: frozenset[int] = frozenset()  # the jobs that share this size; empty: only this one


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A new size for one job, or the wish for one."""

    job_id: int
    size: int
    why: str
    is_wish: bool = False  # only reported: the size is fixed


@dataclass(slots=True)
class _Learned:
    """What was learned in one phase of a job."""

    floor: int = 0  # the greatest size that missed
    size: int = 0  # that it had last
    answered: dict[int, tuple[int, int]] = field(default_factory=dict)  # by size: requests, over ns
    is_doubted: bool = False  # the newest window had another load


@dataclass(slots=True)
class _Watch:
    """One job with an objective."""

    slo_ns: int
    phase_since_ns: int
    began_ns: int  # of the window
    phase: int = 0
    phase_lasted_ns: dict[int, int] = field(default_factory=dict)
    usual: int = 0  # requests of a whole window at the newest rate; 0 = there was none
    durations_ns: list[int] = field(default_factory=list)
    missed: int = 0
    calm: int = 0
    residual: float | None = None  # of the last whole window,
    residual_of: int = 0  # with this size
    drains: bool = False  # in that window requests took less and less
    learned: dict[int, _Learned] = field(default_factory=dict)  # by phase

    @property
    def here(self) -> _Learned:
        """What was learned in the phase it is in."""
        return self.learned.setdefault(self.phase, _Learned())

    def begin(self, now_ns: int) -> None:
        self.began_ns, self.missed = now_ns, 0
        self.durations_ns = []


class Tuner:
    """Feedback for all jobs of one GPU. Belongs to one thread."""

    def __init__(self) -> None:
        self._watches: dict[int, _Watch] = {}
        self._neighbours: frozenset[int] = frozenset()
        self._policy = ""
        self._changed_ns = 0
        self._full_since_ns = inf  # when the oldest window began that has enough requests
        self._is_sure = False  # some window need not wait for its end

    def seat(
        self, slos_ns: Mapping[int, int], jobs: Collection[int], now_ns: int, policy: str = ""
    ) -> bool:
        """Take the jobs on the GPU and their objectives, if any; return whether anything changed.

        Another policy counts as a change: what requests took under the old one says nothing of this
        one.
        """
        neighbours = frozenset(jobs)
        known = {job_id: watch.slo_ns for job_id, watch in self._watches.items()}
        if (neighbours, policy, known) == (self._neighbours, self._policy, dict(slos_ns)):
            return False
        self._neighbours, self._policy = neighbours, policy
        for job_id in self._watches.keys() - slos_ns.keys():
            del self._watches[job_id]
        for job_id, slo_ns in slos_ns.items():
            watch = self._watches.setdefault(
                job_id, _Watch(slo_ns=slo_ns, phase_since_ns=now_ns, began_ns=now_ns)
            )
            watch.slo_ns = slo_ns
            _unlearn(watch, now_ns)
        self._note_windows()
        return True

    def take(self, job_id: int, durations_ns: Iterable[int], now_ns: int) -> None:
        """Take in requests of a job that just ended; jobs without an objective are ignored.

        So are requests that began before the newest change, because they describe the state before
        it.
        """
        watch = self._watches.get(job_id)
        if watch is None:
            return
        for duration_ns in durations_ns:
            is_news = now_ns - duration_ns >= self._changed_ns
            if is_news and len(watch.durations_ns) < MOST_REQUESTS:
                watch.durations_ns.append(duration_ns)
                watch.missed += duration_ns > watch.slo_ns
        if len(watch.durations_ns) >= LEAST_REQUESTS:
            self._full_since_ns = min(self._full_since_ns, watch.began_ns)
        self._is_sure |= _is_sure(watch)

    def enter(self, job_id: int, phase: int, window_ns: int, now_ns: int) -> bool:
        """Tell whether a job entered a phase that is known and lasts: `resume` is then due."""
        watch = self._watches.get(job_id)
        if watch is None or phase == watch.phase:
            return False
        if phase not in watch.learned and len(watch.learned) >= MOST_PHASES:
            return False
        watch.phase_lasted_ns[watch.phase] = now_ns - watch.phase_since_ns
        watch.phase, watch.phase_since_ns = phase, now_ns
        return bool(watch.here.size) and watch.phase_lasted_ns.get(phase, 0) >= window_ns

    def resume(self, job_id: int, sizes: Mapping[int, Sizes], now_ns: int) -> Change | None:
        """Return to the size that its phase ended with, as far as there is room for it now."""
        watch, has = self._watches[job_id], sizes.get(job_id)
        watch.begin(now_ns)
        if has is None or has.is_fixed:
            return None
        size = min(watch.here.size, max(has.now, has.most))
        if size == has.now or (size < has.now and size <= self._floor(job_id, has)):
            return None
        self._begin_anew(job_id, has, size, now_ns)
        return Change(
            job_id=job_id, size=size, why="it is back in a phase that ended with this size"
        )

    def residual(self, job_id: int) -> float | None:
        """Return (SLO - p99) / SLO of its last whole window; None: there was none yet."""
        watch = self._watches.get(job_id)
        return watch.residual if watch else None

    def can_spare(self, job_id: int, size: int, band: float) -> bool:
        """Tell whether a whole window left much to spare, and one group less would not miss.

        One less is safe if that size has not missed, and would not if requests took longer in
        proportion: of few groups one is a large part. What was left to spare with a larger size
        says nothing.
        """
        watch, less = self._watches.get(job_id), size - 1
        if watch is None or watch.residual is None or watch.residual_of > size:
            return False
        keeps = (1 - watch.residual) * size <= less
        return watch.residual > 2 * band and keeps and watch.here.floor < less

    def is_due(self, settings: Settings, now_ns: int) -> bool:
        """Tell whether some window may be over, in constant time."""
        return self._is_sure or now_ns - self._full_since_ns >= settings.window_ns

    def decide(self, sizes: Mapping[int, Sizes], settings: Settings, now_ns: int) -> list[Change]:
        """End windows that are over; return wishes first, then the change to make, if any.

        Jobs that are not in `sizes` can have no size now: what their requests took is forgotten.
        """
        for job_id in self._watches.keys() - sizes.keys():
            _unlearn(self._watches[job_id], now_ns)
        found = self._changes(sizes, settings, now_ns)
        self._note_windows()
        return found

    def _changes(self, sizes: Mapping[int, Sizes], settings: Settings, now_ns: int) -> list[Change]:
        ended = {
            job_id: watch.residual
            for job_id, watch in self._watches.items()
            if job_id in sizes and self._end(watch, sizes[job_id], settings, now_ns)
        }
        residuals = {job_id: r for job_id, r in ended.items() if r is not None}
        residuals = {j: r for j, r in residuals.items() if r >= 0 or not self._watches[j].drains}
        urgent = sorted((job_id for job_id, r in residuals.items()), key=lambda j: residuals[j])
        grown = [_grow(j, residuals[j], sizes[j]) for j in urgent if residuals[j] < 0]
        shrunk = [
            self._shrink(j, residuals[j], sizes[j], settings, now_ns) for j in reversed(urgent)
        ]
        found = [change for change in (*grown, *shrunk) if change is not None]
        change = next((one for one in found if not one.is_wish), None)
        if change is None:
            return found
        self._begin_anew(change.job_id, sizes[change.job_id], change.size, now_ns)
        return [*(one for one in found if one.is_wish), change]

    def _end(self, watch: _Watch, sizes: Sizes, settings: Settings, now_ns: int) -> bool:
        """Take in a window that is over; return whether it was."""
        if not _is_over(watch, settings, now_ns):
            return False
        lasted_ns, count = max(1, now_ns - watch.began_ns), len(watch.durations_ns)
        if count >= LEAST_REQUESTS:
            watch.usual = count * settings.window_ns // lasted_ns
            _note_load(watch, sizes.now, (count, lasted_ns))
        p99_ns = percentile_ns(watch.durations_ns, 0.99)
        watch.residual, watch.residual_of = (watch.slo_ns - p99_ns) / watch.slo_ns, sizes.now
        watch.calm = watch.calm + 1 if watch.residual > 2 * settings.band else 0
        watch.here.size = sizes.now
        watch.drains = _falls(watch.durations_ns)
        if watch.residual < 0 and not watch.drains:
            watch.here.floor = max(watch.here.floor, sizes.now)
        watch.begin(now_ns)
        return True

    def _shrink(
        self, job_id: int, residual: float, sizes: Sizes, settings: Settings, now_ns: int
    ) -> Change | None:
        size = max(sizes.least, sizes.now - sizes.step)
        if not self._floor(job_id, sizes) < size < sizes.now:
            return None
        watches = self._watches_of(job_id, sizes)
        if not all(_is_calm(watch, settings, now_ns) for watch in watches):
            return None
        for watch in watches:
            watch.calm = 0
        why = f"its p99 is {residual:.0%} below its objective"
        return Change(job_id=job_id, size=size, why=why, is_wish=sizes.is_fixed)

    def _watches_of(self, job_id: int, sizes: Sizes) -> list[_Watch]:
        """Return the watches of all jobs that share this size."""
        jobs = sizes.together or (job_id,)
        return [self._watches[one] for one in jobs if one in self._watches]

    def _floor(self, job_id: int, sizes: Sizes) -> int:
        """Return the greatest size with which any of the jobs that share it missed."""
        return max(watch.here.floor for watch in self._watches_of(job_id, sizes))

    def _begin_anew(self, job_id: int, sizes: Sizes, size: int, now_ns: int) -> None:
        """Start anew after a change: what requests took before it says nothing any more."""
        self._changed_ns = now_ns
        for watch in self._watches_of(job_id, sizes):
            watch.here.size = size
        for watch in self._watches.values():
            watch.begin(now_ns)

    def _note_windows(self) -> None:
        """Recompute when a window may be over, after windows were ended or started anew."""
        full = (w for w in self._watches.values() if len(w.durations_ns) >= LEAST_REQUESTS)
        self._full_since_ns = min((watch.began_ns for watch in full), default=inf)
        self._is_sure = False


def _is_over(watch: _Watch, settings: Settings, now_ns: int) -> bool:
    is_full = len(watch.durations_ns) >= LEAST_REQUESTS
    return _is_sure(watch) or (is_full and now_ns - watch.began_ns >= settings.window_ns)


def _is_sure(watch: _Watch) -> bool:
    """Tell whether its p99 will miss the objective unless more requests come than usual."""
    count = len(watch.durations_ns)
    is_enough = count >= (LEAST_OF_MANY if watch.usual >= LEAST_REQUESTS else LEAST_REQUESTS)
    most = max(count, watch.usual or UNUSUAL * count)
    return is_enough and watch.missed > max(1.0, 0.01 * most)


def _is_calm(watch: _Watch, settings: Settings, now_ns: int) -> bool:
    """Tell whether it had much to spare for some windows, or no requests for as long."""
    is_silent = now_ns - watch.began_ns >= CALM_WINDOWS * settings.window_ns
    return watch.calm >= CALM_WINDOWS or (is_silent and not watch.durations_ns)


def _falls(durations_ns: Sequence[int]) -> bool:
    """Tell whether the last third is a tenth shorter than the first, on average."""
    third = len(durations_ns) // 3
    return sum(durations_ns[-third:]) < FALLING * sum(durations_ns[:third])


def _grow(job_id: int, residual: float, sizes: Sizes) -> Change | None:
    size = min(sizes.most, sizes.now + sizes.step)
    if size <= sizes.now:
        return None
    why = f"its p99 is {-residual:.0%} above its objective"
    return Change(job_id=job_id, size=size, why=why, is_wish=sizes.is_fixed)


def _note_load(watch: _Watch, size: int, answered: tuple[int, int]) -> None:
    is_other = is_another_load(*answered, *watch.here.answered.setdefault(size, answered))
    if is_other and watch.here.is_doubted:
        watch.learned[watch.phase] = _Learned(answered={size: answered})
        watch.calm = 0
    else:
        watch.here.is_doubted = is_other


def _unlearn(watch: _Watch, now_ns: int) -> None:
    watch.learned.clear()
    watch.phase_lasted_ns.clear()
    watch.calm, watch.residual = 0, None
    watch.begin(now_ns)
