"""How long requests take at one server that answers them in order of arrival (M/G/1).

Requests arrive by chance and need what their sizes say. The waits of those that wait are assumed to
be exponential, as they are under load (Kingman 1962), with the mean of Pollaczek and Khinchine: the
residual of the request being answered, divided by the unused part of the time (Kleinrock, Queueing
Systems, volume 1, section 5.7).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import exp, inf, log

from tandemd.core.tuner.sizes import ALIKE, PARTS, Sizes


@dataclass(frozen=True, slots=True)
class Asked:
    """The requests of one job."""

    rate: float  # a second
    quick_ns: float  # what a quick request takes
    sizes: Sizes = ALIKE

    @property
    def mean_ns(self) -> float:
        """What a request takes on average."""
        return self.quick_ns * self.sizes.mean

    @property
    def p99_ns(self) -> float:
        """What a request takes that does not wait: 99 of 100 take no longer."""
        return self.quick_ns * self.sizes.p99


@dataclass(frozen=True, slots=True)
class Load:
    """Requests of several jobs, as an arriving request finds them."""

    use: float  # of the server's time; 1 and more: it cannot answer them all
    squares: float  # sum over a second of the squares of what requests take, ns squared

    @staticmethod
    def of(asked: Iterable[Asked]) -> Load:
        """Return the load of all these together."""
        known = list(asked)
        squares = sum(each.rate * each.sizes.square * each.quick_ns**2 for each in known)
        return Load(sum(each.rate * each.mean_ns / 1e9 for each in known), squares)

    def without(self, asked: Asked) -> Load:
        """Return the load of all others."""
        mine = Load.of([asked])
        return Load(self.use - mine.use, self.squares - mine.squares)

    def p99_ns(self, own: Asked) -> float:
        """Return the p99 of a request's wait for these plus its own time; inf: overload.

        With P(wait > w) = use * exp(-w / mean), it is the t that solves use * sum(part * exp(-(t -
        s) / mean)) = 1 % over the request's sizes s; it is never less than the p99 of the sizes
        themselves.
        """
        if self.use >= 1:
            return inf
        if self.use <= 0.01:
            return own.p99_ns  # fewer than one in a hundred find another before them
        mean_ns = self.squares / (self.use * 1e9) / (2 * (1 - self.use))
        less = ((size - own.sizes.p99) * own.quick_ns / mean_ns for size in own.sizes.each)
        late = sum(part * exp(each) for part, each in zip(PARTS, less, strict=True))
        return own.p99_ns + max(0.0, mean_ns * log(100 * self.use * late))
