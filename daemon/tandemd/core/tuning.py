"""What requests take, and the sizes that follow: joins the tuner to jobs and islands."""

from __future__ import annotations

from tandemd.core.events import RequestsServed
from tandemd.core.model import Job


class Tuning:
    """Belongs to the scheduler."""

    def take(self, event: RequestsServed, job: Job) -> None:
        """Requests of a process of the job ended."""
        if event.kind > job.latency.kind:
            job.latency.restart(event.kind)
        if event.kind is job.latency.kind:
            job.latency.add(event.durations_ns, event.now_ns)
