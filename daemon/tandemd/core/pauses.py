"""How requests and pauses of the host lie in the iterations of a job.

A request's own time is at most what one takes that hardly waits. Where that is less than an
iteration, the rest of it is a pause of the host, and else a request is several iterations. Who has
no requests needs the GPU time of an iteration, where that is known.

Both are compared on the same SMs: requests count that began there, and stand for what they took
there until there are enough elsewhere. Pauses are of the iteration that they are told of: where
requests come by chance each record has another.
"""

from __future__ import annotations

from tandemd.core.latency import Rhythm, percentile_ns
from tandemd.core.minima import gpus_of
from tandemd.core.model import Job, Options
from tandemd.core.sm_counts import given_sms

ENOUGH = 10  # requests, or iterations; of fewer nothing is told
LOOK_NS, SOON_NS = 1_000_000_000, 100_000_000  # again, and where there was nothing yet
DIFFERENT = 0.1  # of what they took: less is no news


def note_rhythm(job: Job, options: Options, now_ns: int) -> None:
    """Requests of it ended, or it is known how it scales."""
    if now_ns < job.rhythm_due_ns:
        return
    sms = min((given_sms(job, gpu, options) for gpu in gpus_of(job)), default=0)
    job.rhythm_due_ns = now_ns + SOON_NS
    requests_ns = job.latency.since_moved_ns() if sms else []
    if len(requests_ns) < ENOUGH:
        return
    job.rhythm_due_ns = now_ns + LOOK_NS
    quick_ns, known = percentile_ns(requests_ns, 0.1), job.rhythm
    if (
        known is None
        or known.sms != sms
        or abs(quick_ns - known.quick_ns) > DIFFERENT * known.quick_ns
    ):
        job.rhythm = Rhythm(quick_ns=quick_ns, sms=sms)


def limit_ns(job: Job, request_ns: float) -> float:
    """What an iteration may take for a request to take so long at most."""
    if job.rhythm is None or job.scaling is None:
        return request_ns
    iteration_ns = job.scaling.at(job.rhythm.sms)
    return request_ns / job.rhythm.times(iteration_ns) + job.rhythm.pause_ns(iteration_ns)


def times_and_pause(job: Job, here_ns: float) -> tuple[float, float]:
    """Of any job: iterations of a request, and the pause in one; `here_ns`: one takes where it is.

    GPU times of iterations are known of who did not share the GPU: else they are estimates.
    """
    if job.latency.rate:
        if job.rhythm is None:
            return 1.0, 0.0
        iteration_ns = job.scaling.at(job.rhythm.sms) if job.scaling else here_ns
        return job.rhythm.times(iteration_ns), job.rhythm.pause_ns(iteration_ns)
    usages = [process.usage for process in job.processes.values()]
    known = [u for u in usages if u.iterations >= ENOUGH and u.shared_ns <= u.exclusive_ns / 10]
    if not known or len(known) < len(usages):
        return 1.0, 0.0
    spent_ns = max((u.exclusive_ns + u.shared_ns) / u.iterations for u in known)
    return 1.0, max(0.0, here_ns - spent_ns) if spent_ns else 0.0
