"""Turns the moments of a recorded trace into intervals: turns, waits, iterations, requests."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush

from tandem._results import TraceEvent

_WAITS = {
    "gate": "held: another job's turn, or paused",
    "window": "its window is full",
    "presence": "yields to a job of a higher class",
    "memory": "waits for memory",
}
_LOST = "lost telemetry"
_HIDDEN = "another user's job"
MOST_TRACKS = 256  # of a process, which may mark anything; further tracks are left out
_BEGINS = {"phase-begin": "phase", "request-begin": "request"}
_ENDS = {"phase-end": "phase", "request-end": "request"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """A line of a trace, on which spans do not overlap."""

    gpu: int  # index
    job: str  # empty: a track of the GPU itself
    what: str  # turns, waits, iterations, phases, requests, lost telemetry
    pid: int = 0
    lane: int = 0  # for concurrent items; of waits: the thread; of turns: the part


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """An interval with a name, on a track."""

    track: Track
    name: str
    start_ns: int
    end_ns: int


class Spans:
    """Pairs events into spans as they arrive, in order for each process and for turns.

    Only open spans are kept, so that recordings may be long. The processes write the times, and the
    threads of one do not write in order. So a span that would begin before the previous one on its
    track ended begins at that end.
    """

    def __init__(self, begin_ns: int, name_of: Callable[[str], str] = str) -> None:
        """`begin_ns` is when the recording began; spans open at that time are shown from there on.

        `name_of` gives a job's display name.
        """
        self._begin_ns = self.last_ns = begin_ns  # the latest time in any event
        self._name_of = name_of
        self._open: dict[object, Span] = {}  # by track or mark; their ends are not known yet
        self._free: dict[tuple[int, str], list[int]] = {}  # free lanes of each process; a heap
        self._steps: dict[Track, int] = {}  # end of the last iteration on each track
        self._over_ns: dict[Track, int] = {}  # end of the last span on each track
        self._tracks = Counter[int]()  # number of tracks of each process

    def feed(self, event: TraceEvent) -> Iterator[Span]:
        """Take an event; yield the spans that it ends."""
        self.last_ns = max(self.last_ns, event.time_ns)
        if not event.gpus:
            return
        if event.kind == "turn":
            yield from self._turn(event)
        elif event.kind == "wait":
            yield from self._wait(event)
        elif event.kind == "step":
            yield from self._step(event)
        elif event.kind == "lost":
            yield from self._lost(event)
        elif event.kind in _BEGINS:
            self._begin(event, _BEGINS[event.kind])
        elif event.kind in _ENDS:
            yield from self._end(event, _ENDS[event.kind])

    def finish(self, end_ns: int) -> Iterator[Span]:
        """Yield the spans that are still open, cut at the end of the recording."""
        for span in self._open.values():
            yield from self._until(span, end_ns)
        self._open.clear()

    def _until(self, span: Span, end_ns: int) -> Iterator[Span]:
        track = span.track
        if not self._has_room_for(track):
            return
        start_ns = max(span.start_ns, self._over_ns.get(track, self._begin_ns))
        end_ns = max(start_ns, end_ns)
        self._over_ns[track] = end_ns
        yield Span(track=track, name=span.name, start_ns=start_ns, end_ns=end_ns)

    def _has_room_for(self, track: Track) -> bool:
        if track in self._over_ns or track.what in ("turns", _LOST):
            return True
        self._tracks[track.pid] += 1
        return self._tracks[track.pid] <= MOST_TRACKS

    def _turn(self, event: TraceEvent) -> Iterator[Span]:
        for gpu in event.gpus:
            track = Track(gpu=gpu, job="", what="turns", lane=event.part)
            if (over := self._open.pop(track, None)) is not None:
                yield from self._until(over, event.time_ns)
            if event.jobs:
                names = (self._name_of(job) if job else _HIDDEN for job in event.jobs)
                self._open[track] = _from(event.time_ns, track, " + ".join(names))

    def _wait(self, event: TraceEvent) -> Iterator[Span]:
        track = _track(event, "waits", lane=event.thread)
        name = _WAITS.get(event.reason, "waits")
        yield from self._until(_from(event.time_ns - event.duration_ns, track, name), event.time_ns)

    def _lost(self, event: TraceEvent) -> Iterator[Span]:
        name = f"up to {event.lost_records} waits and marks are missing"
        span = _from(event.time_ns - event.duration_ns, _track(event, _LOST), name)
        yield from self._until(span, event.time_ns)

    def _step(self, event: TraceEvent) -> Iterator[Span]:
        track = _track(event, "iterations")
        before_ns = self._steps.get(track)
        self._steps[track] = event.time_ns
        if before_ns is not None:
            yield from self._until(_from(before_ns, track, "iteration"), event.time_ns)

    def _begin(self, event: TraceEvent, what: str) -> None:
        key = _key(event, what)
        if key in self._open:  # the mark of its end was lost
            self._leave(self._open.pop(key), what)
        place = (event.pid, what)
        if place not in self._free:
            self._free[place] = list(range(MOST_TRACKS))
        if self._free[place]:
            lane = heappop(self._free[place])
            self._open[key] = _from(event.time_ns, _track(event, f"{what}s", lane=lane), what)

    def _end(self, event: TraceEvent, what: str) -> Iterator[Span]:
        span = self._open.pop(_key(event, what), None)
        if span is not None:  # else it began before the recording
            self._leave(span, what)
            yield from self._until(span, event.time_ns)

    def _leave(self, span: Span, what: str) -> None:
        heappush(self._free[span.track.pid, what], span.track.lane)


def _track(event: TraceEvent, what: str, *, lane: int = 0) -> Track:
    return Track(gpu=event.gpus[0], job=event.jobs[0], what=what, pid=event.pid, lane=lane)


def _key(event: TraceEvent, what: str) -> object:
    # A phase belongs to a thread; a request may be answered by another thread than took it.
    return (event.pid, what, event.id, event.thread if what == "phase" else 0)


def _from(start_ns: int, track: Track, name: str) -> Span:
    return Span(track=track, name=name, start_ns=start_ns, end_ns=start_ns)
