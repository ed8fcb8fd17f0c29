"""What was seen of one job: the newest looks, and memory at iteration ends over its whole life.

The looks go back as far as the rules require. The ends go back to the beginning: when there are too
many, every other one is dropped, and from then on only every other new one is kept. So they are
spread evenly over the job's iterations, and the first of them, its warm-up, soon are few.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

from tandemd.core.watchdog.look import Look

END_POINTS = 64
STEADY_LOOKS = 10  # this many with progress, without a pause between them, make a pace
PAUSE_LOOKS = 3
FEW_ITERATIONS = 3  # fewer say nothing about the usual length
SMOOTHING = 0.25
LONGEST_STEP = 4  # times the usual


@dataclass(frozen=True, slots=True)
class End:
    """Device memory of the job at the end of an iteration."""

    iteration: int
    device_bytes: int
    now_ns: int


@dataclass(slots=True)
class Ends:
    """At most END_POINTS ends."""

    points: list[End] = field(default_factory=list)
    _stride: int = 1
    _skipped: int = 0

    def add(self, end: End) -> None:
        """Keep the next end, or skip it."""
        if self.points and end.iteration < self.points[-1].iteration:
            self.points, self._stride = [], 1  # counting restarted: another process leads now
        self._skipped += 1
        if self._skipped < self._stride:
            return
        self._skipped = 0
        self.points.append(end)
        if len(self.points) >= END_POINTS:
            del self.points[::2]
            self._stride *= 2


class History:
    """Looks, oldest first; never empty once `add` was called."""

    def __init__(self, *, span_ns: int) -> None:
        """Keep looks of up to `span_ns` of age, and the one before those."""
        self.looks: deque[Look] = deque()
        self.ends = Ends()
        self.seen: tuple[object, ...] = ()  # what the newest look was made from
        self.now_ns = 0  # known up to here: the newest look, or the rest that followed it
        self.progressed_ns = 0  # when something was last submitted or completed
        self._span_ns = span_ns
        self._iterated_ns: int | None = None  # when an iteration last ended
        self._step_ns = 0.0  # usual time between ends, as seen here
        self._streak = 0  # looks with progress, without a pause between them

    @property
    def last(self) -> Look:
        """The newest look."""
        return self.looks[-1]

    @property
    def is_at_rest(self) -> bool:
        """True if nothing has changed since the newest look."""
        return self.now_ns > self.looks[-1].now_ns

    @property
    def standstill_ns(self) -> int:
        """For how long nothing was submitted or completed."""
        return self.now_ns - self.progressed_ns

    @property
    def iteration_ns(self) -> int:
        """Usual length of its iterations; 0 = there are none, or too few."""
        known = self.last.iterations >= FEW_ITERATIONS
        return int(self.last.iteration_ns or self._step_ns) if known else 0

    @property
    def is_steady(self) -> bool:
        """True if it had found a pace before the present state."""
        return self.iteration_ns > 0 or self._streak >= STEADY_LOOKS

    def rest(self, now_ns: int) -> None:
        """Note that nothing changed since the newest look, which found the job idle."""
        self.now_ns = now_ns

    def add(self, look: Look) -> None:
        """Add the next look."""
        if self.looks and self.now_ns > self.last.now_ns:
            self.looks.append(replace(self.last, now_ns=self.now_ns))
        before = self.looks[-1] if self.looks else None
        self.now_ns = look.now_ns
        if before is None:
            self.progressed_ns = look.now_ns
        else:
            self._note_progress(before, look)
            self._note_iterations(before, look)
        self.looks.append(look)
        while len(self.looks) > 2 and self.looks[1].now_ns <= look.now_ns - self._span_ns:
            self.looks.popleft()

    def _note_progress(self, before: Look, look: Look) -> None:
        if look.progress == before.progress:
            return
        paused = before.now_ns - self.progressed_ns > PAUSE_LOOKS * (look.now_ns - before.now_ns)
        self._streak = 1 if paused else self._streak + 1
        self.progressed_ns = look.now_ns

    def _note_iterations(self, before: Look, look: Look) -> None:
        ended = look.iterations - before.iterations
        if ended == 0:
            return
        if ended > 0 and self._iterated_ns is not None:
            self._smooth((look.now_ns - self._iterated_ns) / ended)
        self._iterated_ns = look.now_ns
        if look.iteration_bytes:
            self.ends.add(End(look.iterations, look.iteration_bytes, look.now_ns))

    def _smooth(self, step_ns: float) -> None:
        """Follow the usual length; a pause between two iterations does not count as one."""
        if self._step_ns:
            step_ns = min(step_ns, LONGEST_STEP * self._step_ns)
        self._step_ns += (step_ns - self._step_ns) * (SMOOTHING if self._step_ns else 1)

    def window(self, span_ns: int) -> list[Look]:
        """Return the looks of the last `span_ns`; none if the job was watched for less."""
        begin_ns = self.now_ns - span_ns
        if self.looks[0].now_ns > begin_ns:
            return []
        inside = [look for look in self.looks if look.now_ns > begin_ns]
        return [self.looks[len(self.looks) - len(inside) - 1], *inside]
