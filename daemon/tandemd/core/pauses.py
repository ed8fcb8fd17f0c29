"""How requests and pauses of the host lie in the iterations of a job.

A request's own time is at most what one takes that hardly waits. Where that is less than an
iteration, the rest of it is a pause of the host, and else a request is several iterations. Who has
no requests needs the GPU time of an iteration, where that is known.
"""

from __future__ import annotations

from tandemd.core.model import Job

ENOUGH = 10  # iterations; of fewer it is not told what each takes of the GPU


def iterations_of_request(job: Job, here_ns: float) -> float:
    """How many a request is, 1 at least, of those that take `here_ns` where the job is now."""
    return max(1.0, job.latency.quick_ns / here_ns)


def pause_ns(job: Job, here_ns: float) -> float:
    """Of an iteration that takes `here_ns` where the job is now; 0 where nobody knows.

    GPU times of iterations are known of who did not share the GPU: else they are estimates.
    """
    if job.latency.rate:
        return max(0.0, here_ns - job.latency.quick_ns)
    usages = [process.usage for process in job.processes.values()]
    known = [u for u in usages if u.iterations >= ENOUGH and u.shared_ns <= u.exclusive_ns / 10]
    if not known or len(known) < len(usages):
        return 0.0
    spent_ns = max((u.exclusive_ns + u.shared_ns) / u.iterations for u in known)
    return max(0.0, here_ns - spent_ns) if spent_ns else 0.0
