"""Trainers under MPS: one takes memory in its forward pass while the other frees it, backward."""

import signal

import pytest
from running_job import HERE, WAITING, start_together, until

from tandem import softgpu

pytestmark = pytest.mark.slow

NAMES = ("tick", "tock")
ITERATIONS = 4
MIB = 1 << 20
PEAK_BYTES, TOTAL_BYTES = 688 * MIB, 1024 * MIB  # of an iteration, and of the device
SUM = 64  # of an iteration in which every layer was written before it was read
FORWARD, BACKWARD = "layer", "layer_back"


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    path = tmp_path_factory.mktemp("kernels") / "phases.so"
    softgpu.compile_kernels(HERE / "curving.cu", path)
    return path


@pytest.fixture
def start(fresh_place):
    def begin(policy):
        fresh_place.env["TANDEM_SOFTGPU_MODE"] = "mps"
        fresh_place.start_daemon(*fresh_place.configured(policy=f"'{policy}'"))
        return fresh_place, {name: fresh_place.job(name) for name in NAMES}

    return begin


def together_ns(one, one_kernel, other, other_kernel):
    """Return for how long a kernel of one job ran beside a kernel of the other."""
    ours = [k for k in one if k["name"] == one_kernel]
    theirs = [k for k in other if k["name"] == other_kernel]
    both = (
        min(a["t_end_ns"], b["t_end_ns"]) - max(a["t_start_ns"], b["t_start_ns"])
        for a in ours
        for b in theirs
    )
    return sum(ns for ns in both if ns > 0)


def test_peaks_of_trainers_that_run_side_by_side_do_not_coincide(start):
    place, jobs = start("phases")
    start_together(dict.fromkeys(jobs.values(), f"curving.train(gpu, {ITERATIONS})"))
    ends = [jobs[name].result() for name in NAMES]
    tick, tock = (place.ran(jobs[name].pid) for name in NAMES)

    assert [end[2] for end in ends] == [SUM * ITERATIONS] * 2
    assert 2 * PEAK_BYTES > TOTAL_BYTES
    assert PEAK_BYTES < max(end[3] for end in ends) <= TOTAL_BYTES
    assert together_ns(tick, FORWARD, tock, FORWARD) == 0
    assert together_ns(tick, BACKWARD, tock, BACKWARD) == 0
    beside_ns = together_ns(tick, FORWARD, tock, BACKWARD)
    beside_ns += together_ns(tick, BACKWARD, tock, FORWARD)
    assert beside_ns > 0.25 * (max(end[1] for end in ends) - min(end[0] for end in ends))


@pytest.mark.parametrize("policy", ["phases", "priority"])
def test_nobody_goes_to_its_peak_while_another_is_at_its_own_but_without_the_gate(start, policy):
    _, jobs = start(policy)
    tick, tock = (jobs[name] for name in NAMES)
    for job in jobs.values():  # long enough for their pace to be known
        job.do(f"curving.train(gpu, {ITERATIONS})")

    tick.start("curving.stand(gpu)")
    assert tick.result() == "at its peak"
    tock.start("curving.refused(gpu, 1)")
    if policy == "priority":
        assert "OUT_OF_MEMORY" in tock.result()
    tick.start("go on")
    assert tick.result() is None
    if policy == "phases":
        assert tock.result() is None


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGSTOP])
def test_nobody_stands_before_its_peak_when_the_daemon_is_gone(start, by):
    place, jobs = start("phases")
    tick, tock = (jobs[name] for name in NAMES)
    for job in jobs.values():
        job.do(f"curving.train(gpu, {ITERATIONS})")
    tick.start("curving.stand(gpu)")
    assert tick.result() == "at its peak"
    tock.start("curving.refused(gpu, 1)")
    until(lambda: WAITING in place.explain("tock"), what="it stands")

    place.daemon.send_signal(by)

    assert "OUT_OF_MEMORY" in tock.result()  # it continues as if it were not held
    tick.start("go on")
    assert tick.result() is None
