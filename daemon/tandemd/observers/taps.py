"""Telemetry for several recordings at once: what is drained goes to each of them."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from tandem.trace.records import RECORD
from tandemd.observers.trace_events import KINDS

MOST_BYTES = 8 << 20  # not yet taken by a recording; beyond that its oldest records are lost

Drained = list[tuple[int, bytes]]


@dataclass(frozen=True, slots=True)
class Taken:
    """What is new for one recording, by process."""

    records: Drained
    lost: Mapping[int, int]  # numbers of records lost to the limit


class _Tap:
    """What one recording has not taken yet."""

    def __init__(self) -> None:
        self._runs: deque[tuple[int, bytes]] = deque()
        self._bytes = 0
        self._lost = Counter[int]()

    def add(self, drained: Drained) -> None:
        for run in drained:
            self._runs.append(run)
            self._bytes += len(run[1])
        while self._bytes > MOST_BYTES:
            process_id, packed = self._runs.popleft()
            self._bytes -= len(packed)
            self._lost[process_id] += len(packed) // RECORD.size

    def take(self) -> Taken:
        taken = Taken([*self._runs], self._lost)
        self._runs.clear()
        self._bytes, self._lost = 0, Counter()
        return taken


class Taps:
    """The taps of one poller, which hands each record out only once. For any thread."""

    def __init__(self, drain: Callable[[int], Drained]) -> None:
        """`drain` takes new records from the poller; its argument has one bit per kind."""
        self._drain_kinds = drain
        self._lock = threading.Lock()
        self._taps: list[_Tap] = []

    @contextmanager
    def open(self) -> Iterator[Callable[[], Taken]]:
        """Record from now on: each call takes what is new, by process."""
        tap = _Tap()
        with self._lock:
            self._drain()  # earlier records are for the other taps alone
            self._taps.append(tap)
        try:
            yield lambda: self._take(tap)
        finally:
            with self._lock:
                self._taps.remove(tap)
                if not self._taps:
                    self._drain_kinds(0)  # nobody records any more

    def _take(self, tap: _Tap) -> Taken:
        with self._lock:
            self._drain()
            return tap.take()

    def _drain(self) -> None:
        drained = self._drain_kinds(KINDS)
        for tap in self._taps:
            tap.add(drained)
