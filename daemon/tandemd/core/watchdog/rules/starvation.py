"""A job that wants to run, has to wait for others, and gets far less than it is owed."""

from __future__ import annotations

from dataclasses import dataclass

from tandemd.core.watchdog.finding import Finding
from tandemd.core.watchdog.history import History
from tandemd.core.watchdog.words import span

RELAXED = 1.5  # a finding stands until the job gets this many times what raised it


@dataclass(frozen=True, slots=True, kw_only=True)
class Starvation:
    """Less than `got_ratio` of its share while it waited for most of `span_ns`."""

    span_ns: int = 10_000_000_000
    got_ratio: float = 0.5
    waiting_ratio: float = 0.5

    def find(self, history: History, *, standing: bool) -> Finding | None:
        """Compare the GPU time its group got with what the policy in force owes it."""
        looks = history.window(self.span_ns)
        if not looks or any(look.paused for look in looks):
            return None
        first, last = looks[0], looks[-1]
        waited_ns = last.held_back_ns - first.held_back_ns
        got_ns, owed_ns = last.served_ns - first.served_ns, last.owed_ns - first.owed_ns
        limit = self.got_ratio * (RELAXED if standing else 1)
        spent_ns = last.now_ns - first.now_ns
        waits = waited_ns >= self.waiting_ratio * spent_ns
        if not waits or owed_ns <= 0 or not 0 <= got_ns < limit * owed_ns:
            return None
        return Finding(
            rule="starvation",
            since_ns=first.now_ns,
            what=f"it got {got_ns / spent_ns:.1%} of the gpu in {span(spent_ns)}, but was owed "
            f"{owed_ns / spent_ns:.1%}; other jobs that want it: {last.rivals}",
            why="it makes far less progress than the policy promises",
            advice="`tandem explain` says who has the gpu; raise the weight of its class, or "
            "scheduler.min_share if higher classes have the gpu, choose another policy, or move "
            "one of the others to another gpu",
            facts=(
                ("got_ns", got_ns),
                ("owed_ns", owed_ns),
                ("waited_ns", waited_ns),
                ("span_ns", spent_ns),
            ),
        )
