"""A process whose iterations begin when its memory curve fits: its progress, and what it needs.

Progress is that of its submissions, because memory is taken when the host asks for it. Where the
progress of the GPU matters, what is still in flight is subtracted.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tandemd.core.curves.curves import Curve, flat
from tandemd.core.curves.laps import Laps, progress_in
from tandemd.core.curves.leases import Claim
from tandemd.core.model import NO_LIMIT, Group, Job, Options, Process
from tandemd.core.turns.companions import unfit

LATE = 1.05  # an iteration longer by this factor than the recorded one is of another kind


@dataclass(slots=True, kw_only=True)
class Tenant:
    """One process, and what it was told."""

    process: Process
    job: Job
    group: Group
    marks: bool = False  # its program marks iterations
    ends: int = 0  # of iterations: marked, or by its laps
    laps: Laps = field(default_factory=Laps)
    end_bytes: int | None = None  # what it held when the newest end was seen
    is_low: bool = True  # that was no more than at the end before
    ends_allowed: int = 0  # stopped after this many; with marks it stops itself; 0 = never
    steps_told: int = 0  # the same, as told to its shim
    gave_way: bool = False  # another went on because it could not end: it is the first to end
    kept_since_ns: int | None = None  # since when it has stood before an iteration
    grown_ns: int = 0  # when its peak last rose
    peak_bytes: int = 0
    reason: str = ""  # why it does not begin, for people

    @property
    def held_bytes(self) -> int:
        """GPU memory that it holds, by its own count."""
        return self.process.usage.device_bytes

    @property
    def is_within(self) -> bool:
        """True in the middle of an iteration, or if it may begin one."""
        if not self.ends_allowed:
            return True
        return (self.process.usage.stopped if self.marks else self.ends) < self.ends_allowed

    @property
    def stands(self) -> bool:
        """True before an iteration, with something to submit or to allocate.

        A program without marks does not stop by itself: by the time an end is found, it has begun
        the next.
        """
        usage = self.process.usage
        waits = usage.waiting_threads > 0 or usage.memory_wait is not None
        return not self.is_within and (waits or not self.marks)

    @property
    def wants_memory(self) -> int:
        """Bytes that it waits for because its lease is used up."""
        process, wait = self.process, self.process.usage.memory_wait
        is_lent = process.lease_bytes <= process.room_bytes  # otherwise all jobs' room is used up
        return wait.size_bytes if wait is not None and wait.is_quota and is_lent else 0

    @property
    def will_give_back(self) -> bool:
        """True if it holds less somewhere later in its iteration than now: it stands high.

        A program that was stopped in the middle of an iteration and has no curve yet may do so too.
        """
        curve = self.process.curve
        return not self.marks if curve is None else min(curve.held_bytes) < self.held_bytes

    def keep(self, now_ns: int, reason: str) -> None:
        """Note that it does not begin, and why."""
        self.reason = reason
        if self.kept_since_ns is None:
            self.kept_since_ns = now_ns

    def kept_ns(self, now_ns: int) -> int:
        """Return for how long it could not begin so far."""
        return 0 if self.kept_since_ns is None else now_ns - self.kept_since_ns

    def begin(self) -> None:
        """Allow it one more iteration."""
        self.ends_allowed = self.ends + 1
        self.kept_since_ns, self.reason = None, ""

    def watch(self, now_ns: int, options: Options) -> None:
        """Take in how its memory grows, and which iterations have ended."""
        usage = self.process.usage
        if usage.steps and not self.marks:  # from now on only marks count
            self.marks, self.ends_allowed = True, min(self.ends_allowed, usage.steps)
        if self.marks:
            ends = usage.steps
        else:
            found = usage.iterations if options.find_iterations else 0
            ends = self.ends + self.laps.has_ended_one(found, self._progress_ns, self.process.curve)
        if ends != self.ends:
            self._end(ends)
        peak_bytes = max(self.process.usage.peak_bytes, self.held_bytes)
        if peak_bytes > self.peak_bytes or not self.grown_ns:
            self.peak_bytes, self.grown_ns = peak_bytes, now_ns

    def _end(self, ends: int) -> None:
        # The first end is found by comparing iterations, and so late, well within the next one.
        # Later ends are recognized by how the next iteration begins.
        before_bytes, self.end_bytes = self.end_bytes, self.held_bytes
        self.is_low = self.marks or (before_bytes is not None and self.held_bytes <= before_bytes)
        self.ends, self.gave_way = ends, False

    def is_quiet(self, now_ns: int, options: Options) -> bool:
        """Tell whether it submitted nothing for so long that nobody waits for its progress."""
        return now_ns - self.group.last_wanted_ns >= options.memory_quiet_ns

    def is_new(self, now_ns: int, options: Options) -> bool:
        """Tell whether its needs are not known yet: no iteration ended, and it grew lately."""
        if self.ends:
            return False
        return now_ns - self.grown_ns < options.memory_quiet_ns or self.wants_memory > 0

    @property
    def most_bytes(self) -> int:
        """The most that an iteration needs, as far as one was seen."""
        curve = self.process.curve
        return self.peak_bytes if curve is None else max(curve.peak_bytes, self.held_bytes)

    @property
    def submitted_ns(self) -> int:
        """Work of this iteration that its host has submitted.

        A program that marks iterations stands before the next one; any other has begun it.
        """
        if self.marks:
            return self._progress_ns if self.is_within else 0
        curve = self.process.curve
        return self._progress_ns if curve is None else progress_in(curve, self._progress_ns)

    @property
    def _progress_ns(self) -> int:
        """Work submitted since an end was marked or found."""
        usage = self.process.usage
        return max(0, usage.work_ns - usage.step_work_ns)

    @property
    def _recorded(self) -> Curve | None:
        """The recorded curve, from where an iteration begins; None: none, or this one differs."""
        curve = self.process.curve
        if curve is None or self.is_late:
            return None
        return curve if self.marks else curve.from_low()

    def done_ns(self, options: Options) -> int:
        """Return the work of this iteration that its GPU has completed for certain."""
        open_ns = self.process.usage.open_segments * options.segment_ns
        return max(0, self.submitted_ns - open_ns)

    def curve(self, options: Options) -> Curve:
        """Return its curve with the host ahead of the GPU by as much as its window allows."""
        curve = self._recorded
        if curve is None:
            return flat(self.most_bytes)
        return curve.ahead(options.window_segments * options.segment_ns)

    @property
    def is_late(self) -> bool:
        """True if this iteration is not like the recorded one."""
        curve = self.process.curve
        done_ns = self.submitted_ns if self.marks else self._progress_ns
        return curve is not None and done_ns > LATE * curve.length_ns

    def claim(self, now_ns: int, options: Options) -> Claim:
        """Return its claim on memory until its iteration ends; new processes rank by arrival.

        A process that gave way comes first: otherwise the other one would take what it gives back
        again.
        """
        if self.is_new(now_ns, options):
            return Claim(more_bytes=None, left_ns=self.group.arrival)
        curve, at_ns = self._recorded, self.submitted_ns
        if curve is None:
            needed_bytes, left_ns, freed_bytes = self.most_bytes, NO_LIMIT, None
        else:
            needed_bytes, left_ns = curve.most_from(at_ns), max(0, curve.length_ns - at_ns)
            freed_bytes = self.held_bytes - curve.rest_bytes
        needed_bytes = max(needed_bytes, self.held_bytes + self.wants_memory)
        left_ns = 0 if self.gave_way else left_ns
        return Claim(
            more_bytes=needed_bytes - self.held_bytes, left_ns=left_ns, freed_bytes=freed_bytes
        )


def objection(group: Group, options: Options) -> str | None:
    """Return why memory curves do not decide when a group's iterations begin; None: they do."""
    against = (
        *unfit(group, options, followed="memory of only one is"),
        # This would conflict with residency.py, which moves memory with turns.
        (any(job.spec.swappable for job in group.jobs.values()), "its memory moves with its turns"),
        (group.paused, "it is paused"),
    )
    return next((why for is_so, why in against if is_so), None)
