"""How requests and pauses of the host relate to the iterations of a job.

A request's own time is at most what one takes that hardly waits. If that is less than an iteration,
the rest of the iteration is a pause of the host, but only as far as it takes equally long on any
number of SMs: if requests vary in size, a larger one was recorded, and the quick one is a part of
it. If it is more than an iteration, a request is several iterations. A job without requests needs
the GPU time of an iteration, as measured while it was nearly alone: while others run, that time is
only an estimate.

Both are compared on the same SMs: only requests and iterations that began there count, and they
stand until there are enough on other SMs. Pauses belong to the iteration that they were derived
from: if requests arrive by chance, each record has others. Curves of jobs that serve bursts have
none (window_scaling.py): there a longer iteration means a larger request.
"""

from __future__ import annotations

from tandemd.core.memory.minima import gpus_of
from tandemd.core.model import Job, JobClass, Options, Process
from tandemd.core.space.sm_counts import given_sms
from tandemd.core.tuner.latency import RequestKind, Rhythm, percentile_ns

ENOUGH = 10  # requests; fewer say nothing
# Nor do fewer iterations: with this many, the unfinished one at either end matters much less than
# the difference that makes one plan better than another (planner.py).
ITERATIONS = 30
LOOK_NS, SOON_NS = 1_000_000_000, 100_000_000  # between looks; and while nothing was found
DIFFERENT = 0.1  # of what requests took: a smaller change is no news
SHARED = 0.1  # of the GPU time; with more of it shared, it is an estimate


def has_requests(job: Job) -> bool:
    """Tell whether its requests are measured: it is of class latency, or has an objective."""
    return job.spec.job_class is JobClass.LATENCY or bool(job.spec.slo_p99_ns)


def serves_bursts(job: Job) -> bool:
    """Tell whether its requests end with their work, so that no pause in between is part of one.

    During marked requests and steps, the host may have work of its own.
    """
    return has_requests(job) and job.latency.kind is RequestKind.BURST


def note_rhythm(job: Job, options: Options, now_ns: int) -> None:
    """Take in that requests or iterations ended, or that a curve became known."""
    if now_ns < job.rhythm_due_ns:
        return
    sms = min((given_sms(job, gpu, options) for gpu in gpus_of(job)), default=0)
    is_served, known = job.latency.count > 0, job.rhythm
    quick_ns = (_request_ns(job) if is_served else _iteration_ns(job)) if sms else 0
    job.rhythm_due_ns = now_ns + (LOOK_NS if quick_ns else SOON_NS)
    # If no requests come for a while, iterations do not tell how many of them a request takes.
    if not quick_ns or (known is not None and known.is_of_requests and not is_served):
        return
    is_near = known is not None and abs(quick_ns - known.quick_ns) <= DIFFERENT * known.quick_ns
    if known is None or known.sms != sms or not (is_served and is_near):
        job.rhythm = Rhythm(quick_ns=quick_ns, sms=sms, is_of_requests=is_served)


def _request_ns(job: Job) -> int:
    """Return what a request takes that began here and hardly waited; 0 = not known."""
    requests_ns = job.latency.since_moved_ns()
    return percentile_ns(requests_ns, 0.1) if len(requests_ns) >= ENOUGH else 0


def _iteration_ns(job: Job) -> int:
    """Return the GPU time of an iteration of its slowest process there; 0 = not known."""
    found = [_gpu_ns(process) for process in job.processes.values()]
    return max(found) if all(found) else 0


def _gpu_ns(process: Process) -> int:
    now, then = process.usage, process.moved
    ended = now.iterations - then.iterations
    alone_ns, shared_ns = now.exclusive_ns - then.exclusive_ns, now.even_ns - then.even_ns
    if ended < ITERATIONS or shared_ns > SHARED * alone_ns:
        return 0
    return (alone_ns + shared_ns) // ended


def limit_ns(job: Job, request_ns: float) -> float:
    """Return what an iteration may take so that a request takes at most `request_ns`."""
    if job.rhythm is None or job.scaling is None:
        return request_ns
    iteration_ns = job.scaling.at(job.rhythm.sms)
    pause_ns = _pause_ns(job, job.rhythm, iteration_ns)
    return request_ns / _times(job.rhythm, iteration_ns - pause_ns) + pause_ns


def times_and_pause(job: Job, here_ns: float, here_sms: int) -> tuple[float, float]:
    """Return how many iterations a quick request takes, and the pause within one.

    `here_ns`: what an iteration takes now, on `here_sms`. Without a curve nothing else is known.
    """
    rhythm = job.rhythm
    if rhythm is None or (job.scaling is None and rhythm.sms != here_sms):
        return 1.0, 0.0
    iteration_ns = job.scaling.at(rhythm.sms) if job.scaling else here_ns
    pause_ns = _pause_ns(job, rhythm, iteration_ns)
    return _times(rhythm, iteration_ns - pause_ns) if job.latency.rate else 1.0, pause_ns


def _pause_ns(job: Job, rhythm: Rhythm, iteration_ns: float) -> float:
    """Return the pause in an iteration of that length, on the SMs of the rhythm."""
    longer_ns = max(0.0, iteration_ns - rhythm.quick_ns)
    if job.scaling is None or not rhythm.is_of_requests:
        return longer_ns
    return min(longer_ns, job.scaling.undivided_ns)


def _times(rhythm: Rhythm, busy_ns: float) -> float:
    """Return a quick request in iterations without pauses; below 1 it is a part of one."""
    return rhythm.quick_ns / busy_ns
