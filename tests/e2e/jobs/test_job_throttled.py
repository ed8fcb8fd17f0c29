"""A normal trainer under MPS, beside batch jobs that slow it down or do not."""

import pytest

pytestmark = pytest.mark.slow

ITERATIONS = 100  # measured ones, of 10 ms each
GROWN, SETTLED = 500, 300  # before those: until nothing, or all that harms, is held back


@pytest.fixture
def image(pairing):
    return pairing


def time_in(kernels, begin_ns, end_ns):
    """Return how long the kernels ran within that time."""
    within = [k for k in kernels if begin_ns <= k["t_start_ns"] and k["t_end_ns"] <= end_ns]
    return sum(k["t_end_ns"] - k["t_start_ns"] for k in within)


def train(place, trainer, low, *, after):
    """Return the time of the trainer's iterations, and the part of it that the other job had."""
    # No pause between the two, in which the other job would have the GPU to itself.
    spans = f"[pairing.train(gpu, 'long_smooth', n) for n in ({after}, {ITERATIONS})]"
    begin_ns, end_ns = trainer.do(spans)[1]
    took_ns = end_ns - begin_ns
    return took_ns, time_in(place.ran(low.pid), begin_ns, end_ns) / took_ns


def batch(place, name, kernel):
    job = place.job(name, "-p", "batch")
    job.go_on(f"lambda: pairing.iterate(gpu, {kernel!r})")
    return job


def told(place):
    with place.client() as client:
        return " ".join(client.explain("trainer").lines)


def test_batch_work_runs_beside_normal_work_as_fast_as_that_loses_little(fresh_place):
    place = fresh_place
    place.env["TANDEM_SOFTGPU_MODE"] = "mps"
    place.start_daemon(*place.configured(policy="'throttle'", min_share=0))
    trainer = place.job("trainer")

    crunch = batch(place, "crunch", "long_crunch")  # needs another resource of the GPU
    beside_ns, harmless = train(place, trainer, crunch, after=GROWN)
    said = told(place)
    place.tandem("policy", "set", "priority")
    alone_ns, waiting = train(place, trainer, crunch, after=1)
    crunch.kill()

    place.tandem("policy", "set", "throttle")
    smooth = batch(place, "smooth", "long_smooth")  # needs the same one
    loaded_ns, harmful = train(place, trainer, smooth, after=SETTLED)

    assert beside_ns < 1.01 * alone_ns
    assert harmless > 0.9
    assert waiting == 0
    assert loaded_ns < 1.06 * alone_ns  # unless held back, the other would double it
    assert 0 < harmful < 0.2
    assert "lower classes may run beside it 100% of its time" in said
