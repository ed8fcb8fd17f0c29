"""How requests and pauses of the host lie in the iterations of a job.

A request's own time is at most what one takes that hardly waits. Where that is less than an
iteration, the rest of it is a pause of the host, as far as that is as long on any number of SMs:
where requests vary in size a larger one was recorded, and the quick one is a part of it. Where it
is more a request is several iterations. Who has no requests needs the GPU time of an iteration, as
it was where that is known: else it is an estimate, for others ran at the same time.

Both are compared on the same SMs: requests and iterations count that began there, and stand for
what they took there until there are enough elsewhere. Pauses are of the iteration that they are
told of: where requests come by chance each record has another. Curves of who serves bursts have
none (window_scaling.py): what an iteration is longer there, its request was larger.
"""

from __future__ import annotations

from tandemd.core.memory.minima import gpus_of
from tandemd.core.model import Job, JobClass, Options, Process
from tandemd.core.space.sm_counts import given_sms
from tandemd.core.tuner.latency import RequestKind, Rhythm, percentile_ns

ENOUGH = 10  # requests; of fewer nothing is told
# Nor of fewer iterations: the one under way at either end is so much less than what makes one plan
# better than another (planner.py).
ITERATIONS = 30
LOOK_NS, SOON_NS = 1_000_000_000, 100_000_000  # again, and where there was nothing yet
DIFFERENT = 0.1  # of what requests took: less is no news
SHARED = 0.1  # of the GPU time; with more of it that is an estimate


def has_requests(job: Job) -> bool:
    """They are told: it is of class latency, or has an objective."""
    return job.spec.job_class is JobClass.LATENCY or bool(job.spec.slo_p99_ns)


def serves_bursts(job: Job) -> bool:
    """Its requests end with their work, so that nothing between two of them is part of one.

    In those that are marked, and in steps, its host may have work of its own.
    """
    return has_requests(job) and job.latency.kind is RequestKind.BURST


def note_rhythm(job: Job, options: Options, now_ns: int) -> None:
    """Requests or iterations of it ended, or it is known how it scales."""
    if now_ns < job.rhythm_due_ns:
        return
    sms = min((given_sms(job, gpu, options) for gpu in gpus_of(job)), default=0)
    is_served, known = job.latency.count > 0, job.rhythm
    quick_ns = (_request_ns(job) if is_served else _iteration_ns(job)) if sms else 0
    job.rhythm_due_ns = now_ns + (LOOK_NS if quick_ns else SOON_NS)
    # Where nobody asks for a while its iterations do not tell how many a request takes.
    if not quick_ns or (known is not None and known.is_of_requests and not is_served):
        return
    is_near = known is not None and abs(quick_ns - known.quick_ns) <= DIFFERENT * known.quick_ns
    if known is None or known.sms != sms or not (is_served and is_near):
        job.rhythm = Rhythm(quick_ns=quick_ns, sms=sms, is_of_requests=is_served)


def _request_ns(job: Job) -> int:
    """Of those that began where it is, one that hardly waited; 0 = not known."""
    requests_ns = job.latency.since_moved_ns()
    return percentile_ns(requests_ns, 0.1) if len(requests_ns) >= ENOUGH else 0


def _iteration_ns(job: Job) -> int:
    """GPU time of one where it is, of its slowest process; 0 = not known."""
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
    """What an iteration may take for a request to take so long at most."""
    if job.rhythm is None or job.scaling is None:
        return request_ns
    iteration_ns = job.scaling.at(job.rhythm.sms)
    pause_ns = _pause_ns(job, job.rhythm, iteration_ns)
    return request_ns / _times(job.rhythm, iteration_ns - pause_ns) + pause_ns


def times_and_pause(job: Job, here_ns: float, here_sms: int) -> tuple[float, float]:
    """Iterations that a quick request of it takes, and the pause in one.

    `here_ns`: one takes where it is, on `here_sms`. Without a curve more is not known.
    """
    rhythm = job.rhythm
    if rhythm is None or (job.scaling is None and rhythm.sms != here_sms):
        return 1.0, 0.0
    iteration_ns = job.scaling.at(rhythm.sms) if job.scaling else here_ns
    pause_ns = _pause_ns(job, rhythm, iteration_ns)
    return _times(rhythm, iteration_ns - pause_ns) if job.latency.rate else 1.0, pause_ns


def _pause_ns(job: Job, rhythm: Rhythm, iteration_ns: float) -> float:
    """Of an iteration of that length, where the rhythm was told."""
    longer_ns = max(0.0, iteration_ns - rhythm.quick_ns)
    if job.scaling is None or not rhythm.is_of_requests:
        return longer_ns
    return min(longer_ns, job.scaling.undivided_ns)


def _times(rhythm: Rhythm, busy_ns: float) -> float:
    """As many as take so long without pauses; of a larger one that was recorded a part."""
    return rhythm.quick_ns / busy_ns
