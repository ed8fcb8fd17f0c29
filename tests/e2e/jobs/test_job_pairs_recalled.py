"""What trials measured before a restart of the daemon decides who shares a turn after it."""

import pytest
from running_job import until

pytestmark = pytest.mark.slow

BLOCKS, ITERATIONS = 64, 30  # each fills the GPU, so side by side both are slow
BOUND = {"crunch": "compute", "smooth": "memory"}  # an iteration takes 1 ms and 2 ms alone
SHARES, DOES_NOT = "may share turns with", "takes turns with"
FORETOLD = "times as long beside"


@pytest.fixture
def image(pairing):
    return pairing


def explained(place, name):
    with place.client() as client:
        return client.explain(name).lines


def train(*jobs):
    for job in jobs:
        job.start(f"pairing.train(gpu, {job.name!r}, {ITERATIONS}, {BLOCKS})")
    return [job.result() for job in jobs]


def classified(place, *jobs):
    """Classify the jobs one by one: records made while others run do not show what bounds a job."""
    for job in jobs:
        told = f"what bounds its work: {BOUND[job.name]}"
        until(
            lambda job=job, told=told: train(job) and told in " ".join(explained(place, job.name)),
            what=told,
            within_s=60,
        )
    return jobs


@pytest.mark.parametrize(("recalls", "decision"), [(True, DOES_NOT), (False, SHARES)])
def test_who_slowed_the_other_down_before_a_restart_does_not_join_it_after_that(
    fresh_place, recalls, decision
):
    place = fresh_place
    place.env["TANDEM_SOFTGPU_MODE"] = "mps"
    options = place.configured(policy="'pair'")
    place.start_daemon(*options)
    before = classified(place, place.job("crunch"), place.job("smooth"))
    until(
        lambda: train(*before) and FORETOLD in " ".join(explained(place, "crunch")),
        what="they were tried together",
        within_s=60,
    )
    assert [job.end() for job in before] == [0, 0]
    place.stop_daemon()
    if not recalls:
        (place.folder / "state.db").unlink()

    place.start_daemon(*options)
    classified(place, place.job("crunch", "--slo", "p99=2ms"), place.job("smooth"))

    told = explained(place, "crunch")
    (verdict,) = (line for line in told if "'smooth': " in line and "turns with" in line)
    foretold = [line for line in told if FORETOLD in line]
    assert verdict.startswith(decision)
    assert ("'crunch' would miss its objective" in verdict) is recalls
    assert [("from before the daemon started" in line) for line in foretold] == [True] * recalls
