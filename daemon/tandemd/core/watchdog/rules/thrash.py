"""Alternation that costs more than it gains: of turns between jobs, or of allocations and frees.

Two kinds are detected: turns shorter than an iteration while part of the GPU's time goes to nobody,
and memory taken from the device in every iteration, each time with a wait for the device. Neither
presence (a job that yields without the daemon) nor memory swapped back and forth is counted.
"""

from __future__ import annotations

from dataclasses import dataclass

from tandemd.core.watchdog.finding import Finding
from tandemd.core.watchdog.history import History
from tandemd.core.watchdog.look import Look
from tandemd.core.watchdog.words import span

RELAXED = 0.7


@dataclass(frozen=True, slots=True, kw_only=True)
class Thrash:
    """Turns that lose `lost_ratio` of the time, or `allocations_count` per iteration."""

    span_ns: int = 10_000_000_000
    turns_per_s: float = 10.0
    lost_ratio: float = 0.2
    allocations_count: float = 10.0
    allocations_per_s: float = 50.0

    def find(self, history: History, *, standing: bool) -> Finding | None:
        """Look for either kind; turns first, because they also cost others."""
        looks = history.window(self.span_ns)
        if not looks:
            return None
        ease = RELAXED if standing else 1.0
        return self._turns(history, looks, ease) or self._allocations(looks, ease)

    def _turns(self, history: History, looks: list[Look], ease: float) -> Finding | None:
        first, last = looks[0], looks[-1]
        contested = all(look.rivals > 0 and not look.paused for look in looks)
        if not contested or (history.iteration_ns and last.quantum_ns > history.iteration_ns):
            return None
        spent_ns = last.now_ns - first.now_ns
        served_ns = last.island_served_ns - first.island_served_ns
        rate = (last.turns - first.turns) / spent_ns * 1e9
        lost = 1 - served_ns / spent_ns
        if rate < ease * self.turns_per_s or not ease * self.lost_ratio <= lost <= 1:
            return None
        turn = f", and an iteration takes {span(history.iteration_ns)}" * bool(history.iteration_ns)
        return Finding(
            rule="thrash",
            since_ns=first.now_ns,
            what=f"it gets {rate:.0f} turns a second{turn}; {lost:.0%} of the gpu's time goes to "
            "no job although jobs wait for it",
            why="each change of turns waits until the work of one job has drained",
            advice="raise scheduler.quantum_ms towards the length of an iteration, or run the jobs "
            "one after the other with the policy fifo",
            facts=(("turns_per_s", rate), ("lost_ratio", lost), ("quantum_ns", last.quantum_ns)),
        )

    def _allocations(self, looks: list[Look], ease: float) -> Finding | None:
        first, last = looks[0], looks[-1]
        taken = last.alloc_count - first.alloc_count
        rate = taken / (last.now_ns - first.now_ns) * 1e9
        each = taken / max(1, last.iterations - first.iterations)
        if rate < ease * self.allocations_per_s or each < ease * self.allocations_count:
            return None
        return Finding(
            rule="thrash",
            since_ns=first.now_ns,
            what=f"it allocates device memory {rate:.0f} times a second, "
            f"{each:.0f} times an iteration",
            why="each such allocation, and the free that goes with it, waits for the device",
            advice="keep buffers, or use a caching allocator or cuMemAllocAsync; a caching "
            "allocator that is short of memory frees and allocates all the time: give it more",
            facts=(("allocations_per_s", rate), ("allocations_per_iteration", each)),
        )
