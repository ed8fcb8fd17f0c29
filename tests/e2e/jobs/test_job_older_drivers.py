"""Jobs under drivers of older CUDA versions, which lack the functions that came later."""

import old_drivers
import pytest
from running_job import start_together, until

MIB = 1 << 20
FILLED, TAKEN = 950, 34  # MiB of the device's 1024
ITERATIONS = 3


@pytest.fixture(params=["12.0", "12.2", "12.4"])
def older(fresh_place, request):
    """The version, as the driver reports it, and a place with that driver."""
    fresh_place.env = old_drivers.of_version(request.param, fresh_place.env)
    fresh_place.start_daemon()
    major, minor = map(int, request.param.split("."))
    return 1000 * major + 10 * minor, fresh_place


def test_jobs_take_turns_with_their_memory_and_have_every_byte(older):
    version, place = older
    filler = place.job("filler")
    assert filler.do("ok(cu.cuDriverGetVersion())") == version
    filler.do(f"int(alloc({FILLED * MIB}))")
    jobs = [place.job(f"t{seed}", "--swappable") for seed in (1, 2)]
    for seed, job in enumerate(jobs, 1):
        job.do("exec('import alternating', globals())")
        job.do(f"globals().__setitem__('t', alternating.Trainer(gpu, {TAKEN}, {seed}))")

    start_together(dict.fromkeys(jobs, f"t.train({ITERATIONS})"))

    until(lambda: "passing its turn on takes" in place.explain("t1"), what="its memory moves")
    assert all(begin < end for begin, end in (job.result() for job in jobs))
    assert [job.do("t.is_right()") for job in jobs] == [True, True]
    with place.client() as client:
        assert all(client.job(f"t{seed}").gpu_time_ns > 0 for seed in (1, 2))
