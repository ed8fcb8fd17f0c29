"""How requests differ in what they need, in times of one that is quick.

What one needs is what it took, less the time in which its process was held. Requests of which
several are under way at once do not tell it: what one takes the others are part of.

Of n requests as many as n/100 were larger than the 99th percentile, by chance some more or fewer
(binomial): what they tell of it lies between two of them (order statistics; David and Nagaraja,
Order Statistics, section 7.1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import ceil, sqrt
from statistics import fmean

from tandemd.core.tuner.latency import percentile_of

# So great parts of all requests, from the smallest on: finer where their p99 comes from.
PARTS = (*[0.1] * 9, 0.05, 0.04, 0.01)
QUICK = 0.1  # the quantile of one that is quick (Latency.quick_ns)
ENOUGH = 20  # requests; of fewer the longest tells of no 99th percentile
SIGMAS = 2  # so far from their number as many as are larger may be by chance: 19 times in 20


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of the requests of one job; any thread."""

    # What one of each of PARTS needs on average; of the last the least, which is the p99.
    each: tuple[float, ...] = (1.0,) * len(PARTS)
    mean: float = 1.0
    square: float = 1.0  # the mean of the squares
    doubt: float = 0.0  # the p99 may be off by this part of itself, by chance

    @property
    def p99(self) -> float:
        """Of 100 requests 99 are no larger."""
        return self.each[-1]


ALIKE = Sizes()


def sizes_of(needed_ns: Sequence[int], quick_ns: float) -> Sizes:
    """Of requests that needed so much of the GPU and of their host, where one took `quick_ns`.

    What is more than a tenth of them need at most counts beside that. Too few are all alike.
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
    """Of their 99th percentile, which is the one at `large`."""
    by_chance = ceil(SIGMAS * sqrt(len(sizes) * 0.99 * 0.01))
    least, most = sizes[max(0, large - by_chance)], sizes[min(large + by_chance, len(sizes) - 1)]
    return max(most - sizes[large], sizes[large] - least) / sizes[large]


def _means(sizes: Sequence[float]) -> Iterator[float]:
    """Of all parts but the last; of one that has none what the next would be."""
    begin = 0
    for part in list(accumulate(PARTS))[:-1]:
        end = round(part * len(sizes))
        yield fmean(sizes[begin:end] or sizes[begin : begin + 1])
        begin = end
