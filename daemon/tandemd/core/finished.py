"""Finished jobs by number, oldest first, kept for a limited time and up to a limited count.

Anybody may start and end jobs at any rate, and every job kept costs memory and time.
"""

from __future__ import annotations

from tandemd.core.model import Job

MOST = 1000
MOST_OF_UID = 100


def keep(finished: dict[int, Job], job: Job) -> None:
    """Keep a job that has just ended; forget the oldest one if there are too many."""
    finished[job.job_id] = job
    of_uid = [other.job_id for other in finished.values() if other.uid == job.uid]
    if len(of_uid) > MOST_OF_UID:
        del finished[of_uid[0]]
    if len(finished) > MOST:
        del finished[next(iter(finished))]


def forget_before(finished: dict[int, Job], horizon_ns: int) -> None:
    """Forget jobs that ended before the horizon."""
    while finished and (oldest := next(iter(finished.values()))).ended_ns < horizon_ns:
        del finished[oldest.job_id]
