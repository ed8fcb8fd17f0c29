"""Counts telemetry that a recorded trace lacks, so that a gap is not taken for idleness."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from tandem.trace.records import RECORD
from tandemd.observers.taps import Taken
from tandemd.observers.trace_events import MOST_OF_PROCESS, Author, TraceEvent, TraceKind


class Losses:
    """The losses of one recording, from look to look. For one thread at a time."""

    def __init__(self, dropped: Mapping[int, int], now_ns: int) -> None:
        """`dropped`: records of each process that its ring, or the poller, had no room for."""
        self._dropped = dict(dropped)
        self._looked_ns = now_ns

    def look(
        self,
        dropped: Mapping[int, int],
        taken: Taken,
        authors: Mapping[int, Author],
        *,
        now_ns: int,
    ) -> list[TraceEvent]:
        """Return what was lost since the last look; `taken` is what came since then."""
        lost = Counter[int]()
        for process_id, packed in taken.records:
            lost[process_id] += len(packed) // RECORD.size
        lost = Counter({one: count - MOST_OF_PROCESS for one, count in lost.items()})
        lost = +lost  # counts received records beyond the limit, which the trace leaves out
        lost.update(taken.lost)
        for process_id, count in dropped.items():
            lost[process_id] += count - self._dropped.get(process_id, 0)
        self._dropped.update(dropped)
        since_ns, self._looked_ns = self._looked_ns, now_ns
        return [
            _event(authors[process_id], count, since_ns=since_ns, now_ns=now_ns)
            for process_id, count in lost.items()
            if count > 0 and process_id in authors
        ]


def _event(author: Author, count: int, *, since_ns: int, now_ns: int) -> TraceEvent:
    return TraceEvent(
        kind=TraceKind.LOST,
        at_ns=now_ns,
        jobs=(author.job,),
        gpus=author.gpus,
        pid=author.pid,
        duration_ns=now_ns - since_ns,
        lost_records=count,
    )
