"""What the requests of a job take, against what was asked for, in words."""

from __future__ import annotations

from tandemd.core.model import Job
from tandemd.core.tuner.latency import SPAN_NS, RequestKind
from tandemd.core.words import span_of

_KINDS = {
    RequestKind.BURST: "bursts of its work on the idle gpu, waits for a turn included",
    RequestKind.STEP: "from the first thing asked of the gpu after a step mark to the next mark",
    RequestKind.MARKED: "as it marks them",
}


def request_lines(job: Job, now_ns: int) -> list[str]:
    """Nothing of a job whose requests nobody looks at, or that has not answered any lately."""
    latency, slo_ns = job.latency, job.spec.slo_p99_ns
    latency.age(now_ns)
    if not latency.count:
        objective = f"no request of it was seen lately; its objective is {span_of(slo_ns)}"
        return [objective] if slo_ns and job.processes else []
    line = (
        f"requests: p99 {span_of(latency.p99_ns)} of {latency.count} in the last "
        f"{span_of(SPAN_NS)} ({_KINDS[latency.kind]})"
    )
    if not slo_ns:
        return [line]
    residual = (slo_ns - latency.p99_ns) / slo_ns
    held = "below" if residual >= 0 else "above"
    return [f"{line}, {abs(residual):.0%} {held} its objective of {span_of(slo_ns)}"]
