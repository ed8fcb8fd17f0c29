"""How jobs scale with SMs, from iterations that are recorded now and then.

An iteration recorded on a different number of SMs than an earlier one is a probe of what was
predicted from that, whoever changed the number. Gamma, which says how little SMs mean to the job's
kernels, is then fitted so that the newer record explains the older one. This holds only while the
job does the same work: a different length on the same number of SMs invalidates all earlier
records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from tandem import _native
from tandemd.core.events import ScalingTold
from tandemd.core.model import Bound, Process
from tandemd.core.space.scaling import SHARED, Curve
from tandemd.edges.worker import Worker
from tandemd.observers import requests
from tandemd.observers.window_scaling import UntoldError, is_same_work, recorded_of, tell_scaling

ANEW_NS = 10_000_000_000  # between two useful records of a process
RETRY_NS = 1_000_000_000  # after a useless one
MOST_SHARED = 0.1  # of its GPU time in a record, beside others that may use its SMs


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A process to be recorded, and how it has its GPU now."""

    process: Process
    sms: int  # that it may use; 0 = not known
    sm_count: int  # of its GPU
    has_own_sms: Callable[[], bool]  # nobody else uses them, even while others run
    # Whether it serves requests in bursts; these come by chance, so the pauses between them tell
    # nothing about the job.
    serves: bool = False


@dataclass(slots=True, kw_only=True)
class _Watch:
    """The state of the requests for one process."""

    sms: int
    serves: bool = False  # False: what was recorded includes pauses
    asked_ns: int = 0
    asked_after: int = 0  # iterations at that time; without a new one there is nothing to record
    is_asked: bool = False
    is_telling: bool = False  # a record is with the worker, or waits for it
    next_ns: int = 0
    taken: dict[int, int] = field(default_factory=dict)  # SMs: recorded length of an iteration


@dataclass(frozen=True, slots=True)
class _Told:
    """The outcome of one record."""

    process_id: int
    sms: int
    curve: Curve | None
    doubt: str


@dataclass(slots=True)
class Scalings:
    """Keeps curves fresh. `look` is for the loop's thread; curves are computed on the worker's."""

    poller: _native.Poller
    worker: Worker
    _watches: dict[int, _Watch] = field(default_factory=dict)
    _told: deque[_Told] = field(default_factory=deque)

    def look(self, wanted: Iterable[Wanted], now_ns: int) -> Iterator[ScalingTold]:
        """Ask for records that are missing or old, and yield what those that ended tell."""
        found = {one.process.process_id: one for one in wanted if one.process.usage.iterations}
        for process_id in self._watches.keys() - found.keys():
            del self._watches[process_id]
        for one in found.values():
            self._look_at(one, now_ns)
        while self._told:
            told = self._told.popleft()
            if (watch := self._watches.get(told.process_id)) is not None:
                _note(told, watch, now_ns)
                yield ScalingTold(
                    now_ns=now_ns, process_id=told.process_id, curve=told.curve, doubt=told.doubt
                )

    def _look_at(self, one: Wanted, now_ns: int) -> None:
        usage = one.process.usage
        watch = self._watches.setdefault(one.process.process_id, _Watch(sms=one.sms))
        if one.serves != watch.serves:
            watch.serves = one.serves
            watch.taken.clear()
        if one.sms != watch.sms:  # a record under way may mix both numbers of SMs
            watch.sms, watch.is_asked, watch.next_ns = one.sms, False, now_ns
            watch.asked_after = 0
        if watch.is_asked:
            self._take(one, watch, now_ns)
        elif watch.is_telling:
            return  # no second record while the worker holds one
        elif now_ns >= watch.next_ns and one.sms and usage.iterations != watch.asked_after:
            self._ask(one.process, watch, now_ns)

    def _ask(self, process: Process, watch: _Watch, now_ns: int) -> None:
        with suppress(KeyError):  # it has left
            self.poller.want_window(process_id=process.process_id)
            watch.asked_ns, watch.is_asked = now_ns, True
            watch.asked_after = process.usage.iterations

    def _take(self, one: Wanted, watch: _Watch, now_ns: int) -> None:
        process_id = one.process.process_id
        window = self.poller.window(process_id=process_id)
        if window is None or window.begin_ns < watch.asked_ns:
            if window is not None and window.end_ns > watch.asked_ns:
                watch.is_asked = False  # for another caller, begun before our request
            return
        watch.is_asked, watch.is_telling = False, True
        is_alone = window.shared_ns <= MOST_SHARED * window.busy_ns
        if not (is_alone or one.has_own_sms()):
            self._told.append(_Told(process_id, one.sms, None, SHARED))
            return
        taken, mix = dict(watch.taken), one.process.mix
        assumed = mix.shares[Bound.MEMORY] if mix else 0.0
        recorded = recorded_of(
            window,
            usual_ns=one.process.usage.iteration_ns,
            pause_ns=requests.IDLE_NS if one.serves else 0,
        )

        def tell() -> None:
            curve, doubt = None, "its record could not be read"
            try:
                curve = tell_scaling(recorded, one.sms, one.sm_count, gamma=assumed, probes=taken)
            except UntoldError as why:
                doubt = str(why)
            finally:  # in any case, so that the next record can come
                self._told.append(_Told(process_id, one.sms, curve, "" if curve else doubt))
                self.poller.wake()

        self.worker.do(tell)


def _note(told: _Told, watch: _Watch, now_ns: int) -> None:
    watch.is_telling = False
    if told.sms == watch.sms:  # otherwise a record with its present SMs is wanted at once
        watch.next_ns = now_ns + (RETRY_NS if told.curve is None else ANEW_NS)
    if told.curve is not None:
        sms, length_ns = told.curve.recorded_sms, told.curve.recorded_ns
        if not is_same_work(length_ns, watch.taken.get(sms)):
            watch.taken.clear()
        watch.taken[sms] = length_ns
