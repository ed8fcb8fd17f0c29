"""Waiting for jobs: the daemon reports changes, so nothing polls."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from tandem.errors import (
    CapacityError,
    DeadlineError,
    NotFoundError,
    StateError,
    UnavailableError,
    UsageError,
)

if TYPE_CHECKING:
    from tandem._client import Client
    from tandem._results import Job, JobEvent

LONGEST_S = 1e9  # 30 years; gRPC treats much longer deadlines as expired
ENDED, EXITED = "ended", "exited"
STATES = (ENDED, "running", "waiting", "paused", "swapped", "idle", "detached")


def arrivals(
    client: Client,
    jobs: Sequence[str | Job],
    *,
    until: str = ENDED,
    deadline_s: float | None = None,
) -> Iterator[Job]:
    """Yield each job, given by name or as a `Job`, when it gets there; raises as `Client.wait`."""
    if until not in STATES:
        raise UsageError(f"until {until!r} is not one of {', '.join(STATES)}")
    end_s = math.inf if deadline_s is None else time.monotonic() + deadline_s
    known = {job.name: job for job in jobs if not isinstance(job, str)}
    waiting, has_begun = [job if isinstance(job, str) else job.name for job in jobs], False
    try:
        while waiting:
            left_s = None if deadline_s is None else max(0.001, end_s - time.monotonic())
            with closing(client.watch(deadline_s=left_s)) as events:
                # The watch has begun, so no change from here on is missed.
                now = {job.name: job for job in (_now(client, name, known) for name in waiting)}
                known |= now
                waiting, has_begun = list(now), True
                for job in _told(now, EXITED if until == ENDED else until, events):
                    waiting.remove(job.name)
                    yield job
    except DeadlineError as exc:
        if deadline_s is None or (not has_begun and time.monotonic() < end_s):  # another deadline
            raise UnavailableError(str(exc)) from exc
        late = f"{' and '.join(waiting)} not {until} within {deadline_s:g} s"
        raise DeadlineError(late) from exc
    except UnavailableError as exc:
        if not has_begun:
            raise
        raise UnavailableError(f"{' and '.join(waiting)} may go on, but {exc}") from exc


def _now(client: Client, name: str, known: dict[str, Job]) -> Job:
    """Ask for a job. Of many that end at once the daemon may have forgotten some: they ended."""
    try:
        return client.job(name)
    except NotFoundError:
        if name not in known:
            raise
        return replace(known[name], state=EXITED)


def _told(jobs: dict[str, Job], state: str, events: Iterator[JobEvent]) -> Iterator[Job]:
    """Yield the jobs that are there, then those that arrive; ends early if changes were missed."""
    for job in list(jobs.values()):
        if _is_there(job, state):
            yield jobs.pop(job.name)
    has_heard = False
    try:
        while jobs and (event := next(events, None)):
            has_heard = True
            if event.job.name in jobs and _is_there(event.job, state, event.kind):
                del jobs[event.job.name]
                yield event.job
    except CapacityError:
        if not has_heard:  # too many watches: this one never began
            raise


def _is_there(job: Job, state: str, kind: str = "") -> bool:
    if state in (job.state, kind):  # an event may report a state that is already over
        return True
    if job.state == EXITED:
        raise StateError(f"{job.name} has ended, and will not be {state}")
    return False
