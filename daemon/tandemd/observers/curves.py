"""Memory curves of processes, from an iteration of each that is recorded now and then."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from tandem import _native
from tandemd.core.curves.curves import Curve
from tandemd.core.events import CurveRecorded
from tandemd.core.model import Process

ANEW_NS = 10_000_000_000  # between two curves of a process
RETRY_NS = 50_000_000  # after an iteration that gave no curve
MOST_STEPS = 64
MOST_UNTIMED = 0.1  # of the launches; with more, progress through the iteration is not known


@dataclass(slots=True)
class _Watch:
    """The state of the requests for one process."""

    seen_ns: int = 0  # end of the newest window looked at
    is_asked: bool = False
    next_ns: int = 0  # no new request before this


@dataclass(slots=True)
class Curves:
    """Keeps curves fresh. `look` is for the loop's thread."""

    poller: _native.Poller
    _watches: dict[int, _Watch] = field(default_factory=dict)

    def look(self, processes: Iterable[Process], now_ns: int) -> Iterator[CurveRecorded]:
        """Ask for iterations of processes that have any, and yield the curves of ended ones."""
        wanted = {process.process_id for process in processes if process.usage.iterations}
        for process_id in self._watches.keys() - wanted:
            del self._watches[process_id]
        for process_id in wanted:
            watch = self._watches.setdefault(process_id, _Watch())
            curve = self._take(process_id, watch, now_ns)
            if curve is not None:
                yield CurveRecorded(now_ns=now_ns, process_id=process_id, curve=curve)
            if not watch.is_asked and now_ns >= watch.next_ns:
                with suppress(KeyError):  # it has left
                    self.poller.want_window(process_id=process_id)
                    watch.is_asked = True

    def _take(self, process_id: int, watch: _Watch, now_ns: int) -> Curve | None:
        window = self.poller.window(process_id=process_id)
        if window is None or window.end_ns <= watch.seen_ns:
            return None
        # Set first, so that a window that fails is not looked at again and again.
        watch.seen_ns, watch.is_asked, watch.next_ns = window.end_ns, False, now_ns + RETRY_NS
        curve = curve_of(window)
        if curve is not None:
            watch.next_ns = now_ns + ANEW_NS
        return curve


def curve_of(window: _native.Window) -> Curve | None:
    """Return the curve of a window that is one whole iteration; None: it has none."""
    if window.iterations != 1 or window.lost or window.is_cut:
        return None
    steps, length_ns, launches, untimed = _native.memory_curve(window.records, most=MOST_STEPS)
    if not steps or untimed > MOST_UNTIMED * launches:
        return None
    starts_ns, held_bytes = zip(*steps, strict=True)
    return Curve(starts_ns, held_bytes, length_ns) if max(held_bytes) else None
