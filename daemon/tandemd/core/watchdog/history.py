"""What was seen of one job: the newest looks, and its memory at ends of iterations over its life.

The looks reach back as far as the rules ask for. The ends reach back to the beginning: when they
are too many, every other one goes, and from then on only every other one comes. So they are evenly
spread over the job's iterations, and the first of them, its warm-up, are soon few.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

from tandemd.core.watchdog.look import Look

END_POINTS = 64
STEADY_LOOKS = 10  # with progress, without a pause between them, are a pace
PAUSE_LOOKS = 3
FEW_ITERATIONS = 3  # fewer say nothing of the usual length
SMOOTHING = 0.25
LONGEST_STEP = 4  # times the usual


@dataclass(frozen=True, slots=True)
class End:
    """Device memory of the job when an iteration had ended."""

    iteration: int
    device_bytes: int
    now_ns: int


@dataclass(slots=True)
class Ends:
    """At most END_POINTS of them."""

    points: list[End] = field(default_factory=list)
    _stride: int = 1
    _skipped: int = 0

    def add(self, end: End) -> None:
        """Take the next, or pass over it."""
        if self.points and end.iteration < self.points[-1].iteration:
            self.points, self._stride = [], 1  # counted anew: another process is ahead now
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
        """Keep looks that are up to `span_ns` old, and the one before those."""
        self.looks: deque[Look] = deque()
        self.ends = Ends()
        self.seen: tuple[object, ...] = ()  # what the newest look was made of
        self.now_ns = 0  # up to when it is known: the newest look, or the end of the rest after it
        self.progressed_ns = 0  # when something was submitted or completed last
        self._span_ns = span_ns
        self._iterated_ns: int | None = None  # when an iteration ended last
        self._step_ns = 0.0  # usual time between ends, as seen here
        self._streak = 0  # looks with progress, without a pause between them

    @property
    def last(self) -> Look:
        """The newest."""
        return self.looks[-1]

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing has changed since the newest look."""
        return self.now_ns > self.looks[-1].now_ns

    @property
    def standstill_ns(self) -> int:
        """For how long nothing was submitted or completed."""
        return self.now_ns - self.progressed_ns

    @property
    def iteration_ns(self) -> int:
        """Usual length of its iterations; 0 = it has none, or too few."""
        known = self.last.iterations >= FEW_ITERATIONS
        return int(self.last.iteration_ns or self._step_ns) if known else 0

    @property
    def is_steady(self) -> bool:
        """Whether it had found a pace before what is now."""
        return self.iteration_ns > 0 or self._streak >= STEADY_LOOKS

    def rest(self, now_ns: int) -> None:
        """Nothing has changed since the newest look, and there was nothing to do then."""
        self.now_ns = now_ns

    def add(self, look: Look) -> None:
        """Take the next look."""
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
        """Follow the usual length; a pause between two iterations is not one of them."""
        if self._step_ns:
            step_ns = min(step_ns, LONGEST_STEP * self._step_ns)
        self._step_ns += (step_ns - self._step_ns) * (SMOOTHING if self._step_ns else 1)

    def window(self, span_ns: int) -> list[Look]:
        """The looks of the last `span_ns`, or none if it was not watched for so long."""
        begin_ns = self.now_ns - span_ns
        if self.looks[0].now_ns > begin_ns:
            return []
        inside = [look for look in self.looks if look.now_ns > begin_ns]
        return [self.looks[len(self.looks) - len(inside) - 1], *inside]
