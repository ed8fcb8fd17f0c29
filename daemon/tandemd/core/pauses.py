"""How requests and pauses of the host lie in the iterations of a job.

A request's own time is at most what one takes that hardly waits. Where that is less than an
iteration, the rest of it is a pause of the host, and else a request is several iterations. Who has
no requests needs the GPU time of an iteration, where that is known.

Both are compared on the same SMs: requests count that began there. What is known stays until it is
clearly otherwise, so that what is decided by it comes to rest.
"""

from __future__ import annotations

from tandemd.core.latency import Rhythm, percentile_ns
from tandemd.core.model import Job, Options
from tandemd.core.sm_counts import given_sms

ENOUGH = 10  # requests, or iterations; of fewer nothing is told
LOOK_NS = 1_000_000_000  # again
DIFFERENT = 0.1  # of an iteration: less is no news


NONE_KNOWN = Rhythm()


def note_rhythm(job: Job, options: Options, now_ns: int) -> None:
    """Requests of it ended, or it is known how it scales."""
    if now_ns < job.rhythm_due_ns:
        return
    here_ns, requests_ns = _here_ns(job, options), job.latency.since_moved_ns()
    if not here_ns or len(requests_ns) < ENOUGH:
        return
    job.rhythm_due_ns = now_ns + LOOK_NS
    quick_ns = percentile_ns(requests_ns, 0.1)
    found = Rhythm(max(1.0, quick_ns / here_ns), max(0.0, here_ns - quick_ns))
    known = job.rhythm
    if (
        known is None
        or abs(found.pause_ns - known.pause_ns) > DIFFERENT * here_ns
        or abs(found.times - known.times) > DIFFERENT
    ):
        job.rhythm = found


def _here_ns(job: Job, options: Options) -> float:
    """An iteration on the SMs that it has; 0 = not known."""
    if job.scaling is None:
        return max((process.usage.iteration_ns for process in job.processes.values()), default=0)
    gpus = {gpu for process in job.processes.values() for gpu in process.gpus}
    given = min((given_sms(job, gpu, options) for gpu in gpus), default=0)
    return job.scaling.at(given) if given else 0.0


def rhythm_of(job: Job, here_ns: float) -> Rhythm:
    """The same of any job, where its iterations take `here_ns`.

    GPU times of iterations are known of who did not share the GPU: else they are estimates.
    """
    if job.latency.rate:
        return job.rhythm or NONE_KNOWN
    usages = [process.usage for process in job.processes.values()]
    known = [u for u in usages if u.iterations >= ENOUGH and u.shared_ns <= u.exclusive_ns / 10]
    if not known or len(known) < len(usages):
        return NONE_KNOWN
    spent_ns = max((u.exclusive_ns + u.shared_ns) / u.iterations for u in known)
    return Rhythm(pause_ns=max(0.0, here_ns - spent_ns)) if spent_ns else NONE_KNOWN
