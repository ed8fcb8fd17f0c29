"""Jobs that have ended, by number, the oldest first: for a while, and no more than so many.

Anybody may start and end jobs at any rate, and each that is kept costs memory and looks.
"""

from __future__ import annotations

from tandemd.core.model import Job

MOST = 1000
MOST_OF_UID = 100


def keep(finished: dict[int, Job], job: Job) -> None:
    """It has just ended; where there are too many now, the oldest is forgotten."""
    finished[job.job_id] = job
    of_uid = [other.job_id for other in finished.values() if other.uid == job.uid]
    if len(of_uid) > MOST_OF_UID:
        del finished[of_uid[0]]
    if len(finished) > MOST:
        del finished[next(iter(finished))]


def forget_before(finished: dict[int, Job], horizon_ns: int) -> None:
    """Forget those that ended before that."""
    while finished and (oldest := next(iter(finished.values()))).ended_ns < horizon_ns:
        del finished[oldest.job_id]
