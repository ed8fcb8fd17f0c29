"""Trainers under MPS whose memory fits together only if one is shifted against the other."""

import signal

import pytest
from running_job import HERE, start_together, until
from test_job_pairs import explained, overlap_ns

from tandem import softgpu

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

NAMES = ("tick", "tock")
ITERATIONS = 10
MIB = 1 << 20
PEAK_BYTES, TOTAL_BYTES = 688 * MIB, 1024 * MIB  # of an iteration, and of the device
SUM = 64  # of an iteration in which every layer was written before it was read


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    path = tmp_path_factory.mktemp("kernels") / "curving.so"
    softgpu.compile_kernels(HERE / "curving.cu", path)
    return path


def train(jobs, *, together, marks=True):
    """Train all jobs; return the time it took, the sums, and the most memory that was in use."""
    train_one = f"curving.train(gpu, {ITERATIONS}, marks={marks})"
    if together:
        start_together({jobs[name]: train_one for name in NAMES})
        ends = [jobs[name].result() for name in NAMES]
    else:
        ends = [jobs[name].do(train_one) for name in NAMES]
    begins, finals, sums, used = zip(*ends, strict=True)
    return max(finals) - min(begins), sums, max(used)


def test_trainers_that_do_not_fit_together_run_side_by_side_when_shifted(fresh_place):
    place = fresh_place
    place.env["TANDEM_SOFTGPU_MODE"] = "mps"
    place.start_daemon(*place.configured(policy="'curves'"))
    jobs = {name: place.job(name) for name in NAMES}

    _, first_sums, first_used = train(jobs, together=True)
    shifted_ns, sums, used = train(jobs, together=True)
    ran = {name: place.ran(job.pid) for name, job in jobs.items()}
    _, lines = explained(place, "tick")
    place.configured(policy="'priority'")
    place.daemon.send_signal(signal.SIGHUP)
    until(lambda: "policy priority" in explained(place, "tick")[1], what="the other policy")
    serial_ns, last_sums, _ = train(jobs, together=False)
    start_together({jobs[name]: f"curving.refused(gpu, {ITERATIONS})" for name in NAMES})
    unshifted = [jobs[name].result() for name in NAMES]

    assert 2 * PEAK_BYTES > TOTAL_BYTES
    assert first_used <= TOTAL_BYTES
    assert PEAK_BYTES < used <= TOTAL_BYTES
    assert first_sums == (SUM * ITERATIONS,) * 2
    assert sums == (SUM * 2 * ITERATIONS,) * 2
    assert last_sums == (SUM * 3 * ITERATIONS,) * 2
    assert shifted_ns < 0.75 * serial_ns
    assert overlap_ns(ran, *NAMES) > 0.25 * shifted_ns
    assert "memory curve: " in lines
    assert "to 688 MiB in an iteration of 6." in lines
    assert any("OUT_OF_MEMORY" in (end or "") for end in unshifted)


@pytest.mark.parametrize("together_from_the_start", [False, True])
def test_iterations_that_are_not_marked_are_shifted_where_their_ends_are_found(
    fresh_place, together_from_the_start
):
    place = fresh_place
    place.env["TANDEM_SOFTGPU_MODE"] = "mps"
    place.start_daemon(*place.configured(policy="'curves'"))
    jobs = {name: place.job(name) for name in NAMES}
    # Train until iterations have been found and recorded.
    train(jobs, together=together_from_the_start, marks=False)

    shifted_ns, sums, used = train(jobs, together=True, marks=False)
    ran = {name: place.ran(job.pid) for name, job in jobs.items()}
    _, lines = explained(place, "tick")

    assert PEAK_BYTES < used <= TOTAL_BYTES
    assert sums == (SUM * 2 * ITERATIONS,) * 2
    assert overlap_ns(ran, *NAMES) > 0.25 * shifted_ns
    assert "to 688 MiB in an iteration of 6." in lines
