"""How much memory is unused between uses for long enough to be moved away meanwhile."""

from collections.abc import Sequence
from dataclasses import dataclass

from tandem._native import Analysis

# Each way. The daemon assumes the same for a process that has not measured its link (docs/swap.md).
LINK_BYTES_PER_S = 12_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The memory that work on the GPU is known to use, in bytes, each buffer counted once."""

    used_bytes: int
    # Of buffers that could go to the host and return before their next use: they rest for at least
    # as long as both copies take (the free time of Peng et al., Capuchin, ASPLOS 2020).
    resting_bytes: int
    is_bound: bool  # some uses of these may be unknown: the true value may be less


def memory_of(analysis: Analysis, is_work: Sequence[bool]) -> Memory:
    """Sum up the buffers by their longest rest; one without a known next use has none.

    `is_work` tells for each node whether it works on the GPU. The time between an allocation and
    its first use, or between the last use and the end, is no rest.
    """
    used: dict[int, int] = {}
    resting: dict[int, bool] = {}  # whether another use may come in between
    for use in analysis.next_uses:
        if not is_work[use.node - analysis.first]:
            continue
        used[use.address] = use.bytes
        copies_ns = 2 * use.bytes * 1_000_000_000 // LINK_BYTES_PER_S
        if use.next is None or not is_work[use.next - analysis.first]:
            continue
        if (use.distance_ns or 0) >= max(1, copies_ns):
            resting[use.address] = resting.get(use.address, True) and use.is_bound
    return Memory(
        used_bytes=sum(used.values()),
        resting_bytes=sum(used[address] for address in resting),
        is_bound=any(resting.values()),
    )
