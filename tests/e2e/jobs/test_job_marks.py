"""The daemon reports the iterations and phases that a job marks."""

import pytest
from running_job import until

MARKED = """
import tandem
def launch(times):
    for _ in range(times): gpu.affine(word, 2, 1)
def train(iterations):
    for _ in range(iterations):
        for _ in range(2):  # what repeats are halves of an iteration
            with tandem.phase("forward"): launch(6)
            with tandem.phase("backward"): launch(12)
            ok(cu.cuCtxSynchronize())
        with tandem.phase("update"): launch(4)
        ok(cu.cuCtxSynchronize())
        tandem.step()
"""


@pytest.mark.slow
def test_marked_iterations_and_phases_are_explained(place):
    job = place.job("marked")
    job.do(f"exec({MARKED!r}, globals())")
    job.do("train(40)")

    def lines():
        with place.client() as client:
            return client.explain("marked").lines

    until(lambda: "iterations: 40 so far, marked by the job" in lines(), what="all steps are seen")
    until(lambda: any(line.startswith("phases: ") for line in lines()), what="phases are told")

    told = lines()
    assert "phases: forward 30%, backward 60%, update 10% of its gpu time (marked)" in told
    (length,) = [line for line in told if line.startswith("marked iterations: ")]
    assert length.endswith("and 40 launches each")
    assert not any("found in what it submits" in line for line in told)
