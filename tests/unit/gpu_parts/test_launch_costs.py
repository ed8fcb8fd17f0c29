"""Costs of a launch, computed from single launches in three processes."""

import pytest
from bench.gpu.figures.launch_costs import launch_costs
from bench.gpu.parts.launches import must_be

from tandem.demo.process import WorkerError


def rounds(*pairs):
    return [{"median_ns": m, "p99_ns": p, "stamp_ns": 20.0} for m, p in pairs]


def test_what_is_added_is_that_to_the_round_beside_it():
    # The machine slowed to half its speed after the first round.
    found = launch_costs(
        {
            "bare": rounds((2000, 3000), (4000, 6000), (4000, 6000)),
            "managed": rounds((2030, 3400), (4030, 6400), (4020, 6900)),
            "observed": rounds((2010, 3000), (4010, 6000), (4010, 6000)),
        }
    )

    assert found["bare"] == {"median_ns": 4000.0, "p99_ns": 6000.0}
    assert found["managed"]["added_median_ns"] == 30.0
    assert found["managed"]["added_p99_ns"] == 400.0
    assert found["observed"]["added_p99_ns"] == 0.0
    assert found["stamp_ns"] == 20.0


def test_what_a_bare_launch_takes_longer_with_something_behind_it_is_told():
    bare = [
        {**one, "recorded_ns": recorded, "locked_ns": 2500}
        for one, recorded in zip(
            rounds((2000, 1), (2020, 1), (2010, 1)), (2030, 2110, 2040), strict=True
        )
    ]

    found = launch_costs({"bare": bare})

    assert found["bare"]["added_recorded_ns"] == 30.0
    assert found["bare"]["added_locked_ns"] == 490.0


def test_a_process_that_is_not_what_it_should_be_has_no_figures():
    must_be("bare", managed=False)
    must_be("observed", managed=True)
    with pytest.raises(WorkerError, match="'managed' is not managed"):
        must_be("managed", managed=False)
    with pytest.raises(WorkerError, match="'bare' is managed"):
        must_be("bare", managed=True)
