"""Explains how long a job's requests take, against its objective or its marks."""

from __future__ import annotations

from tandemd.core.model import Job
from tandemd.core.tuner.latency import SPAN_NS, Latency, RequestKind
from tandemd.core.tuner.pauses import has_requests
from tandemd.core.words import span_of

_KINDS = {
    RequestKind.BURST: "bursts of its work on the idle gpu, including waits for a turn",
    RequestKind.STEP: "from the first call for the gpu after a step mark to the next mark",
    RequestKind.MARKED: "as it marks them",
}


def newest_requests(job: Job, now_ns: int) -> Latency:
    """The requests that people are told about, without those that are too old."""
    reported = job.served.newest
    reported.age(now_ns)
    if has_requests(job) or not reported.count:
        reported = job.latency
        reported.age(now_ns)
    return reported


def request_lines(job: Job, now_ns: int) -> list[str]:
    """Describe recent requests; without any, only the limit, if the job has one."""
    newest, asked_ns = newest_requests(job, now_ns), job.spec.slo_p99_ns
    limit_ns = asked_ns or job.served.marked_p99_ns(now_ns)
    limit = span_of(limit_ns)
    if not newest.count:
        objective = f"its objective is {limit}" if asked_ns else f"its marks allow {limit}"
        unseen = f"none of its requests was seen lately; {objective}"
        return [unseen] if limit_ns and job.processes else []
    line = (
        f"requests: p99 {span_of(newest.p99_ns)} of {newest.count} in the last "
        f"{span_of(SPAN_NS)} ({_KINDS[newest.kind]})"
    )
    if not limit_ns:
        return [line]
    residual = (limit_ns - newest.p99_ns) / limit_ns
    held = "below" if residual >= 0 else "above"
    allows = f"the {limit} that its marks allow (--slo asks for none)"
    objective = f"its objective of {limit}" if asked_ns else allows
    return [f"{line}, {abs(residual):.0%} {held} {objective}"]
