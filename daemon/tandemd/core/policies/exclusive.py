"""One request at a time, whole, the one that must begin first; other work in between.

After Clockwork (Gujarati et al., OSDI 2020): work that has the GPU to itself takes as long as
before, so it is known when a request must begin at the latest. That is its arrival, plus the time
it may take (its job's objective), minus the longest time one takes. A latency job without an
objective is due as soon as it asks.

Best-effort work gets the rest, in proportion to weights, an iteration at a time. It begins whenever
nothing is due, because nothing here predicts the next request. The next request then takes the GPU
at once, which costs no more than draining two segments; Clockwork, which cannot preempt, would not
have begun work that does not fit. Letting an iteration end because the request still has time for
it is no good: requests that arrive meanwhile would wait for both.

A request that cannot meet its objective is not rejected, as it would be in Clockwork: the process
has already accepted it.
"""

from __future__ import annotations

from tandemd.core.model import Group, JobClass
from tandemd.core.policies.policy import Policy
from tandemd.core.words import span_of


class Exclusive(Policy):
    """The group that must begin first goes next; groups without objective that can wait go last."""

    description = "one whole request at a time, the one that has to begin first; others in between"
    by_pieces = True

    def tier(self, group: Group) -> int:
        """Work that is due precedes other work, which is ranked by class."""
        return int(JobClass.LATENCY if _is_due(group) else group.job_class)

    def order(self, group: Group) -> float:
        """By latest start; fair among groups without one."""
        return latest_start_ns(group) if _is_due(group) else group.virtual_ns

    def preempts(self, challenger: Group, holder: Group) -> bool:
        """Due work preempts other work; a higher class preempts only where no piece is cut."""
        if self.tier(challenger) >= self.tier(holder):
            return False
        piece, served_ns = holder.piece, holder.served_ns
        is_whole = piece.is_fresh(served_ns) or not piece.is_foreseen(served_ns)
        return is_whole or _is_due(challenger)

    def why_waits(self, group: Group, holder: Group, now_ns: int) -> str:
        """The latest starts, if both groups have one."""
        if _is_due(holder) and not _is_due(group):
            return "and goes first: it is due"
        if _is_due(holder) and self.order(holder) <= self.order(group):
            due, own = (latest_start_ns(one) - now_ns for one in (holder, group))
            return f"and has to begin first: {_when(due)}, this one {_when(own)}"
        left_ns = holder.piece.most_left_ns(holder.served_ns)
        return f"until its {holder.piece.kind.word} ends: at most {span_of(left_ns)} of gpu time"


def latest_start_ns(group: Group) -> int:
    """When its piece of work must begin to be in time, if it takes as long as the longest known."""
    objectives_ns = [job.spec.slo_p99_ns for job in group.jobs.values() if job.spec.slo_p99_ns]
    objective_ns = min(objectives_ns, default=0)
    return group.piece.began_ns + max(0, objective_ns - group.piece.most_ns)


def _is_due(group: Group) -> bool:
    jobs = group.jobs.values()
    return any(j.spec.job_class is JobClass.LATENCY or j.spec.slo_p99_ns for j in jobs)


def _when(span_ns: int) -> str:
    return f"in {span_of(span_ns)}" if span_ns > 0 else f"{span_of(-span_ns)} ago"
