"""Jobs whose GPU time per request the scheduler has learned."""

from talk import MS

from tandemd.core.events import RequestsServed
from tandemd.core.explain.explain import explain
from tandemd.core.tuner.latency import RequestKind


def group(talk, job_id):
    return talk.core.groups[talk.core.jobs[job_id].group_key]


def said(talk, job_id):
    return explain(talk.core, talk.core.job(job_id), talk.now_ns).summary


def answer(talk, job_id, after_ms=0.0):
    """One request of the job ends."""
    talk.now_ns += int(after_ms * MS)
    served = RequestsServed(
        now_ns=talk.now_ns, process_id=job_id, kind=RequestKind.MARKED, durations_ns=(MS,)
    )
    return talk.say(served)


def teach(talk, job_id, *took_ms):
    """The job, alone, answers requests that take so much GPU time; the first teaches nothing."""
    talk.works(job_id)
    answer(talk, job_id)
    for ms in took_ms:
        talk.works(job_id, after_ms=ms, ran_ms=ms)
        answer(talk, job_id)
    talk.rests(job_id)
    talk.tick(after_ms=5)
