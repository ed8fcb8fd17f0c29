"""Waves in one process: passes of the same kind never overlap, forward overlaps backward."""

import pytest
from running_job import HERE
from test_job_pairs import overlap_ns

from tandem import softgpu

pytestmark = pytest.mark.slow

ITERATIONS = 6


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    path = tmp_path_factory.mktemp("kernels") / "waving.so"
    softgpu.compile_kernels(HERE / "waving.cu", path)
    return path


def passes(place, job, seen):
    """Return the new kernels by name and wave, waves in the order in which they begin."""
    new = [kernel for kernel in place.ran(job.pid) if kernel["kind"] == "kernel"][seen:]
    streams = dict.fromkeys(k["stream"] for k in sorted(new, key=lambda k: k["t_start_ns"]))
    ran = {
        (name, wave): [k for k in new if k["name"] == name and k["stream"] == stream]
        for name in ("forward", "backward")
        for wave, stream in enumerate(streams)
    }
    return ran, seen + len(new)


def test_forward_overlaps_backward_and_nothing_of_its_own_kind(place):
    job = place.job("waves")

    job.do(f"waving.train(gpu, {ITERATIONS}, gated=True)")
    gated, seen = passes(place, job, 0)
    job.do(f"waving.train(gpu, {ITERATIONS}, gated=False)")
    ungated, seen = passes(place, job, seen)
    job.do(f"waving.train(gpu, {ITERATIONS}, gated=True, fails_at=2)")
    failed, _ = passes(place, job, seen)

    for name in ("forward", "backward"):
        assert overlap_ns(gated, (name, 0), (name, 1)) == 0
        assert overlap_ns(ungated, (name, 0), (name, 1)) > 0
    assert overlap_ns(gated, ("forward", 0), ("backward", 1)) > 0
    assert overlap_ns(gated, ("forward", 1), ("backward", 0)) > 0
    assert {len(kernels) for kernels in gated.values()} == {5 * ITERATIONS}
    assert len(failed["backward", 0]) == 5 * ITERATIONS  # it continued after the other had left
    assert len(failed["forward", 1]) == 5 * 2
