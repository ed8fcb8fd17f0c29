"""Asks the poller how long requests took, for jobs where that matters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tandem import _native
from tandemd.core.events import RequestsServed
from tandemd.core.model import Job
from tandemd.core.tuner.latency import RequestKind
from tandemd.core.tuner.pauses import has_requests

IDLE_NS = 1_000_000  # a process that submits nothing for so long has ended a burst (idle_grace_ns)


def look(
    poller: _native.Poller, jobs: Iterable[Job], now_ns: int, *, misses_are_news: bool
) -> Iterator[RequestsServed]:
    """Yield the requests that ended meanwhile, of latency jobs and jobs with an objective.

    Processes that mark their requests are included: their programs want to know. `misses_are_news`:
    report at once when a request took longer than its objective.
    """
    for job in jobs:
        wants_all = has_requests(job)
        for process_id, process in job.processes.items():
            if not (wants_all or process.usage.marks_requests):
                continue
            found = poller.take_requests(
                process_id=process_id,
                idle_ns=IDLE_NS,
                limit_ns=job.spec.slo_p99_ns if misses_are_news else 0,
            )
            if found is not None and found[1]:
                yield RequestsServed(
                    now_ns=now_ns,
                    process_id=process_id,
                    kind=RequestKind(found[0]),
                    durations_ns=tuple(found[1]),
                    at_once=found[2],
                    said_ns=tuple(found[3]),
                    held_ns=tuple(found[4]),
                )
