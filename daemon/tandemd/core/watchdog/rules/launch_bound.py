"""A job whose host cannot submit its small kernels as fast as the GPU runs them.

While such a job keeps launching, the GPU nearly always has work of it (`exclusive_ns`, sampled by
the daemon once a millisecond), but the predicted times of its kernels add up to only a small part
of that time. This sets it apart from a job that waits for its data, which leaves the GPU without
work for milliseconds, and from one that is held, which has no work there either.
"""

from __future__ import annotations

from dataclasses import dataclass

from tandemd.core.watchdog.finding import Finding
from tandemd.core.watchdog.history import History
from tandemd.core.watchdog.look import Look
from tandemd.core.watchdog.words import span

RELAXED = 1.2
KNOWN = 0.8  # of its submissions must have a prediction
ALONE = 0.9  # of its GPU time it must have had alone: otherwise others slow it down


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchBound:
    """Kernels fill less than `filled_ratio` of the time in which the GPU has work of the job."""

    span_ns: int = 10_000_000_000
    filled_ratio: float = 0.5
    occupied_ratio: float = 0.5  # minimum fraction of `span_ns` with work of the job on the GPU
    kernel_ns: int = 50_000  # and its kernels are shorter than this on average

    def find(self, history: History, *, standing: bool) -> Finding | None:
        """Compare the time that kernels need with the time in which they are submitted."""
        looks = history.window(self.span_ns)
        if not looks or not _is_clear(looks[0], looks[-1]):
            return None
        first, last = looks[0], looks[-1]
        spent_ns, occupied_ns = last.now_ns - first.now_ns, last.exclusive_ns - first.exclusive_ns
        if occupied_ns < self.occupied_ratio * spent_ns:
            return None
        timed = last.timed_count - first.timed_count
        work_ns = last.work_ns - first.work_ns
        limit = self.filled_ratio * (RELAXED if standing else 1)
        if work_ns >= limit * occupied_ns or work_ns >= self.kernel_ns * timed:
            return None
        rate = (last.launches - first.launches) / spent_ns * 1e9
        return Finding(
            rule="launch-bound",
            since_ns=first.now_ns,
            what=f"it submits {rate:,.0f} kernels a second of {span(work_ns / timed)} each, which "
            f"fill {work_ns / occupied_ns:.0%} of the time in which the gpu has work of it",
            why="the gpu waits for the host: neither more SMs nor a higher priority makes it "
            "faster",
            advice="submit fewer and larger kernels: torch.compile, CUDA graphs, a larger batch; "
            "or pin its host threads, if others take their CPU",
            facts=(
                ("launches_per_s", rate),
                ("kernel_ns", work_ns / timed),
                ("filled_ratio", work_ns / occupied_ns),
            ),
        )


def _is_clear(first: Look, last: Look) -> bool:
    """Tell whether it was alone on the GPU, was not held back, and its kernels are measured."""
    shared_ns, alone_ns = last.shared_ns - first.shared_ns, last.exclusive_ns - first.exclusive_ns
    held_ns = last.held_back_ns - first.held_back_ns
    spent_ns, timed = last.now_ns - first.now_ns, last.timed_count - first.timed_count
    return (
        alone_ns > 0
        and alone_ns >= ALONE * (alone_ns + shared_ns)
        and held_ns <= (1 - ALONE) * spent_ns
        and timed > 0
        and timed >= KNOWN * (last.launches - first.launches)
    )
