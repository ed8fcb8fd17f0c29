"""When requests arrive: a Poisson process with a fixed seed, the same in every scenario."""

from __future__ import annotations

import random


def poisson_ns(*, seed: int, mean_gap_ns: int, until_ns: int) -> list[int]:
    """Arrival times in (0, until_ns), increasing.

    Raises:
        ValueError: the mean gap is not positive.
    """
    if mean_gap_ns <= 0:
        msg = f"the mean gap between requests must be positive, not {mean_gap_ns} ns"
        raise ValueError(msg)
    source = random.Random(seed)
    times: list[int] = []
    now = 0.0
    while True:
        now += source.expovariate(1.0 / mean_gap_ns)
        if now >= until_ns:
            return times
        times.append(int(now))
