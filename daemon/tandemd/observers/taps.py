"""Telemetry for several who record at once: what is drained goes to each of them."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from tandem.trace.records import RECORD
from tandemd.observers.trace_events import KINDS

MOST_BYTES = 8 << 20  # that somebody has not taken yet; of more the oldest are lost

Drained = list[tuple[int, bytes]]


@dataclass(frozen=True, slots=True)
class Taken:
    """What is new to one of them, by process."""

    records: Drained
    lost: Mapping[int, int]  # how many records were too many for it to wait


class _Tap:
    """What one of them has not taken yet."""

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
    """Of one poller, which hands each record out once. For any thread."""

    def __init__(self, drain: Callable[[int], Drained]) -> None:
        """`drain`: takes what is new from the poller, of kinds that are a bit each."""
        self._drain_kinds = drain
        self._lock = threading.Lock()
        self._taps: list[_Tap] = []

    @contextmanager
    def open(self) -> Iterator[Callable[[], Taken]]:
        """Records from now on: each call takes what is new, by process."""
        tap = _Tap()
        with self._lock:
            self._drain()  # what was before is for the others alone
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
