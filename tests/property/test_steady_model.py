"""Under constant load sizes and plans settle: three jobs with randomly arriving requests.

Settling is bounded by what the tuner and the planner have to try: a size of each job, which takes a
window or a few each, and a plan, which takes two windows each. On eight groups sixty windows are
enough for that, except for one more step: a job with few requests rarely misses with a size that is
just too small, and a rate, measured over thirty seconds, rarely makes the forecast miss for a plan
that is only just good enough. Nothing is tried again after that, so it does not happen twice.
"""

import pytest
from steady_gpu import Steady

SETTLED_S, CONSTANT_S = 60, 60


@pytest.mark.parametrize(
    ("tuner", "planner", "seed"),
    [
        *((True, True, seed) for seed in (0, 3, 9, 12)),
        *((False, True, seed) for seed in (0, 8, 12)),
        *((True, False, seed) for seed in (0, 17, 20)),
    ],
)
def test_on_sets_of_sms_nothing_changes_in_sixty_seconds_of_constant_load(tuner, planner, seed):
    changes = Steady(seed, tuner=tuner, planner=planner).play(SETTLED_S + CONSTANT_S)

    assert len(changes) > 1  # the first choice was not right
    late = [change for change in changes if change[0] > SETTLED_S]
    assert len(late) <= 1, late


@pytest.mark.parametrize(("tuner", "seed"), [(True, 0), (True, 7), (True, 8), (False, 8)])
def test_where_requests_vary_much_in_size_nothing_changes_either(tuner, seed):
    """How many of the newest requests are large is chance, and no reason for another plan."""
    steady = Steady(seed, tuner=tuner, planner=True, varied=True)

    changes = steady.play(SETTLED_S + CONSTANT_S)

    (division,) = steady.core.divisions.by_island.values()
    assert any(worker.sizes.p99 > 3 for worker in division.seen.scene.workers.values())
    assert len(changes) > 1
    late = [change for change in changes if change[0] > SETTLED_S]
    assert len(late) <= 1, late


@pytest.mark.parametrize("seed", range(6))
def test_shares_of_time_never_go_to_and_fro(seed):
    """With few requests few miss, so one more step may come late, but never a step back."""
    changes = Steady(seed, tuner=True, planner=False, green=False).play(4 * CONSTANT_S)

    shares = [[share for _, _, share in sizes.values()] for _, sizes in changes]
    late = [each for (at_s, _), each in zip(changes, shares, strict=True) if at_s > 2 * SETTLED_S]
    assert len(changes) > 1
    for before, after in zip(shares[-len(late) - 1 :], late, strict=False):
        assert all(more >= less for less, more in zip(before, after, strict=True))
