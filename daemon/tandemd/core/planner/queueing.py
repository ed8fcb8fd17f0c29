"""What requests take that come to one server and are answered in order of arrival (M/G/1).

They come by chance, and need what their sizes say. Of those who wait the waits are taken to be
exponential, as they are under load (Kingman 1962), with the mean of Pollaczek and Khinchine: the
residual of what is being answered, over what is not in use (Kleinrock, Queueing Systems, volume 1,
section 5.7).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import exp, inf, log

from tandemd.core.tuner.sizes import ALIKE, PARTS, Sizes


@dataclass(frozen=True, slots=True)
class Asked:
    """Requests of one job."""

    rate: float  # a second
    quick_ns: float  # what one takes that is quick
    sizes: Sizes = ALIKE

    @property
    def mean_ns(self) -> float:
        """What one takes."""
        return self.quick_ns * self.sizes.mean

    @property
    def p99_ns(self) -> float:
        """What one takes that waits for nobody: 99 of 100 no longer."""
        return self.quick_ns * self.sizes.p99


@dataclass(frozen=True, slots=True)
class Load:
    """Requests of several jobs, as one finds them that comes."""

    use: float  # of the server's time; 1 and more: it cannot answer them all
    squares: float  # of what all of a second take, ns squared

    @staticmethod
    def of(asked: Iterable[Asked]) -> Load:
        """That these are together."""
        known = list(asked)
        squares = sum(each.rate * each.sizes.square * each.quick_ns**2 for each in known)
        return Load(sum(each.rate * each.mean_ns / 1e9 for each in known), squares)

    def without(self, asked: Asked) -> Load:
        """Those of the others."""
        mine = Load.of([asked])
        return Load(self.use - mine.use, self.squares - mine.squares)

    def p99_ns(self, own: Asked) -> float:
        """Of a request's wait for these and what it takes itself; inf: not all can be answered.

        With P(wait > w) = use * exp(-w / mean) it is the t of which the sizes s of the request
        leave use * sum(part * exp(-(t - s) / mean)) = 1 %; and not less than the p99 of these.
        """
        if self.use >= 1:
            return inf
        if self.use <= 0.01:
            return own.p99_ns  # fewer than one in a hundred find anybody before them
        mean_ns = self.squares / (self.use * 1e9) / (2 * (1 - self.use))
        less = ((size - own.sizes.p99) * own.quick_ns / mean_ns for size in own.sizes.each)
        late = sum(part * exp(each) for part, each in zip(PARTS, less, strict=True))
        return own.p99_ns + max(0.0, mean_ns * log(100 * self.use * late))
