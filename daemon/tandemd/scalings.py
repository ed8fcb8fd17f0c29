"""How jobs scale with SMs, told from iterations that are recorded now and then.

An iteration that was recorded on another number of SMs than one before is a probe of what was
predicted from that, whoever changed the number: how little SMs mean to the job's kernels (gamma) is
then fitted, so that the newer record explains the older one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from tandem import _native
from tandemd.core.events import ScalingTold
from tandemd.core.model import Bound, Process, Usage
from tandemd.core.scaling import SHARED, Curve
from tandemd.edges.worker import Worker
from tandemd.window_scaling import UntoldError, recorded_of, tell_scaling

ANEW_NS = 10_000_000_000  # between two records of a process that tell something
RETRY_NS = 1_000_000_000  # after one that does not
MOST_SHARED = 0.1  # of its GPU time meanwhile, beside others that may use its SMs


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A process of which a record is wanted, and how it has its GPU now."""

    process: Process
    sms: int  # that it may use; 0 = not known
    sm_count: int  # of its GPU
    has_own_sms: bool  # nobody else uses these, also while others run


@dataclass(slots=True, kw_only=True)
class _Watch:
    """What was asked for one process."""

    sms: int
    has_moved: bool = False  # it had other SMs before
    asked_ns: int = 0
    is_asked: bool = False
    next_ns: int = 0
    before: Usage | None = None
    taken: dict[int, int] = field(default_factory=dict)  # SMs: an iteration's length, recorded


@dataclass(slots=True)
class Scalings:
    """Keeps curves fresh. `look` is for the loop's thread; they are told on the worker's."""

    poller: _native.Poller
    worker: Worker
    _watches: dict[int, _Watch] = field(default_factory=dict)
    _told: deque[tuple[int, Curve | None, str]] = field(default_factory=deque)

    def look(self, wanted: Iterable[Wanted], now_ns: int) -> Iterator[ScalingTold]:
        """Ask for records that are missing or old, and say what those that ended tell."""
        found = {one.process.process_id: one for one in wanted if one.process.usage.iterations}
        for process_id in self._watches.keys() - found.keys():
            del self._watches[process_id]
        for one in found.values():
            self._look_at(one, now_ns)
        while self._told:
            process_id, curve, doubt = self._told.popleft()
            if (watch := self._watches.get(process_id)) is not None:
                watch.next_ns = now_ns + (RETRY_NS if curve is None else ANEW_NS)
                if curve is not None:
                    watch.taken[curve.recorded_sms] = curve.recorded_ns
                yield ScalingTold(now_ns=now_ns, process_id=process_id, curve=curve, doubt=doubt)

    def _look_at(self, one: Wanted, now_ns: int) -> None:
        watch = self._watches.setdefault(one.process.process_id, _Watch(sms=one.sms))
        if one.sms != watch.sms:  # what was asked for may be of both
            watch.sms, watch.is_asked, watch.next_ns = one.sms, False, now_ns
            watch.has_moved = True
        if watch.is_asked:
            self._take(one, watch, now_ns)
        elif now_ns >= watch.next_ns and one.sms:
            self._ask(one.process, watch, now_ns)

    def _ask(self, process: Process, watch: _Watch, now_ns: int) -> None:
        with suppress(KeyError):  # it has left
            self.poller.want_window(process_id=process.process_id)
            watch.asked_ns, watch.is_asked, watch.before = now_ns, True, process.usage

    def _take(self, one: Wanted, watch: _Watch, now_ns: int) -> None:
        process_id = one.process.process_id
        window = self.poller.window(process_id=process_id)
        if window is None or window.begin_ns < watch.asked_ns:
            if window is not None and window.end_ns > watch.asked_ns:
                watch.is_asked = False  # somebody else's, which had begun before
            return
        watch.is_asked, watch.next_ns = False, now_ns + ANEW_NS
        is_alone = one.has_own_sms or _shared_part(watch.before, one.process.usage) <= MOST_SHARED
        if not is_alone:
            self._told.append((process_id, None, SHARED))
            return
        taken, mix = dict(watch.taken), one.process.mix
        assumed = mix.shares[Bound.MEMORY] if mix else 0.0

        usual_ns = one.process.usage.iteration_ns
        recorded = recorded_of(window, usual_ns=usual_ns, are_stale=watch.has_moved)

        def tell() -> None:
            try:
                told = tell_scaling(
                    recorded,
                    one.sms,
                    one.sm_count,
                    gamma=assumed,
                    probes=taken,
                )
            except UntoldError as why:
                self._told.append((process_id, None, str(why)))
            else:
                self._told.append((process_id, told, ""))
            self.poller.wake()

        self.worker.do(tell)


def _shared_part(before: Usage | None, after: Usage) -> float:
    """Of the GPU time in between."""
    if before is None:
        return 1.0
    shared_ns = after.shared_ns - before.shared_ns
    return shared_ns / max(1, shared_ns + after.exclusive_ns - before.exclusive_ns)
