"""One request at a time, whole: the one that has to begin first to be in time; others between.

After Clockwork (Gujarati et al., OSDI 2020): what has the GPU to itself takes as long as it took
before, so it is known by when a request has to begin. That is when it came, plus what it may take
(the objective of its job), less what one takes at most. A job of the latency class without an
objective is due as soon as it asks.

Best-effort work has what is left, in proportion to weights, an iteration at a time. It begins
whenever nothing is due: nothing here knows when the next request comes. That then takes the GPU at
once, which costs no more than a drain of two segments; Clockwork, which cannot cut, would not have
begun what does not fit. To let an iteration end because the request has time for that is no good:
requests that come meanwhile have to wait for both.

A request that cannot be in time is not rejected, as Clockwork would do: the process has it already.
"""

from __future__ import annotations

from tandemd.core.model import Group, JobClass
from tandemd.core.policies.policy import Policy
from tandemd.core.words import span_of


class Exclusive(Policy):
    """Who has to begin first goes next; whoever names no objective and can wait goes last."""

    description = "one request at a time, whole, the one that has to begin first; others between"
    by_pieces = True

    def tier(self, group: Group) -> int:
        """Work that is due before work that is not, which has the rank of its class."""
        return int(JobClass.LATENCY if _is_due(group) else group.job_class)

    def order(self, group: Group) -> float:
        """By latest start; fair among those who have none."""
        return latest_start_ns(group) if _is_due(group) else group.virtual_ns

    def preempts(self, challenger: Group, holder: Group) -> bool:
        """Work that is due, other work; a higher class where nothing whole is cut."""
        if self.tier(challenger) >= self.tier(holder):
            return False
        piece, served_ns = holder.piece, holder.served_ns
        is_whole = piece.is_fresh(served_ns) or not piece.is_foreseen(served_ns)
        return is_whole or _is_due(challenger)

    def why_waits(self, group: Group, holder: Group, now_ns: int) -> str:
        """Latest starts, where both have one."""
        if _is_due(holder) and not _is_due(group):
            return "and goes first: it is due"
        if _is_due(holder) and self.order(holder) <= self.order(group):
            due, own = (latest_start_ns(one) - now_ns for one in (holder, group))
            return f"and had to begin first: {_when(due)}, {_when(own)} here"
        left_ns = holder.piece.most_left_ns(holder.served_ns)
        return f"until its {holder.piece.kind.word} ends: {span_of(left_ns)} of gpu time at most"


def latest_start_ns(group: Group) -> int:
    """When its piece of work has to begin to be in time, should it take as long as any."""
    objectives_ns = [job.spec.slo_p99_ns for job in group.jobs.values() if job.spec.slo_p99_ns]
    objective_ns = min(objectives_ns, default=0)
    return group.piece.began_ns + max(0, objective_ns - group.piece.most_ns)


def _is_due(group: Group) -> bool:
    jobs = group.jobs.values()
    return any(j.spec.job_class is JobClass.LATENCY or j.spec.slo_p99_ns for j in jobs)


def _when(span_ns: int) -> str:
    return f"in {span_of(span_ns)}" if span_ns > 0 else f"{span_of(-span_ns)} ago"
