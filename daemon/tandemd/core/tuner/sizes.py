"""How requests differ in what they need, in units of a quick request.

What a request needs is its duration less the time its process was held. If several requests are
under way at once their durations do not tell, because each contains parts of the others.

Of n requests, n/100 should exceed the 99th percentile, but by chance it is some more or fewer
(binomial). So the true percentile lies between two of the observed values (order statistics; David
and Nagaraja, Order Statistics, section 7.1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import ceil, sqrt
from statistics import fmean

from tandemd.core.tuner.latency import percentile_of

# Fractions of all requests, from the smallest up: finer where their p99 comes from.
PARTS = (*[0.1] * 9, 0.05, 0.04, 0.01)
QUICK = 0.1  # the quantile that counts as quick (Latency.quick_ns)
ENOUGH = 20  # requests; the longest of fewer says nothing of a 99th percentile
SIGMAS = 2  # the number of larger ones is this close to its mean 19 times in 20


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of one job's requests; usable from any thread."""

    # Average size in each of PARTS; in the last, the smallest, which is the p99.
    each: tuple[float, ...] = (1.0,) * len(PARTS)
    mean: float = 1.0
    square: float = 1.0  # the mean of the squares
    doubt: float = 0.0  # relative error that chance may have made in the p99

    @property
    def p99(self) -> float:
        """99 of 100 requests are no larger."""
        return self.each[-1]


ALIKE = Sizes()


def sizes_of(needed_ns: Sequence[int], quick_ns: float) -> Sizes:
    """Return sizes from what requests needed of the GPU and the host; a quick one took `quick_ns`.

    What a request needs beyond the QUICK quantile is added to the size of a quick one. If there are
    too few requests, all count as alike.
    """
    if len(needed_ns) < ENOUGH or quick_ns <= 0:
        return ALIKE
    ascending = sorted(needed_ns)
    least_ns = percentile_of(ascending, QUICK)
    sizes = [1 + max(0, ns - least_ns) / quick_ns for ns in ascending]
    large = ceil(0.99 * len(sizes)) - 1
    each = (*_means(sizes), sizes[large])
    return Sizes(each, fmean(sizes), fmean(size * size for size in sizes), _doubt(sizes, large))


def _doubt(sizes: Sequence[float], large: int) -> float:
    """Return the relative error of the 99th percentile, which is at index `large`."""
    by_chance = ceil(SIGMAS * sqrt(len(sizes) * 0.99 * 0.01))
    least, most = sizes[max(0, large - by_chance)], sizes[min(large + by_chance, len(sizes) - 1)]
    return max(most - sizes[large], sizes[large] - least) / sizes[large]


def _means(sizes: Sequence[float]) -> Iterator[float]:
    """Yield the mean of each part but the last; an empty part gets the start of the next."""
    begin = 0
    for part in list(accumulate(PARTS))[:-1]:
        end = round(part * len(sizes))
        yield fmean(sizes[begin:end] or sizes[begin : begin + 1])
        begin = end
