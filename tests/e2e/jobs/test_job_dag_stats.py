"""What `tandem dag stats` says of a running job agrees with the device's timeline."""

import json
from itertools import pairwise

import pytest

KERNELS, SMS = 3, 8  # of an iteration; of the GPU


@pytest.fixture
def shown(place, sharers):
    """Stats as JSON and as text, and (begin, end) of an iteration's kernels in the timeline."""
    job = place.job("overlap")
    job.go_on(f"__import__('overlapping').Overlap(gpu, {str(sharers)!r}).iterate")
    as_json = json.loads(place.tandem("dag", "stats", "overlap", "--json"))
    as_text = place.tandem("dag", "stats", "overlap")
    ran = sorted((one["t_start_ns"], one["t_end_ns"]) for one in place.ran(job.pid))
    is_whole = len(ran) // KERNELS * KERNELS
    return as_json, as_text.splitlines(), ran[is_whole - KERNELS : is_whole]


def width_ns(kernels):
    """Return for how long 0, 1, 2... of the kernels ran at once."""
    times = sorted({time for kernel in kernels for time in kernel})
    found = [0] * (len(kernels) + 1)
    for begin, end in pairwise(times):
        found[sum(start <= begin and end <= stop for start, stop in kernels)] += end - begin
    return found


@pytest.mark.slow
def test_figures_of_a_running_job_are_those_of_the_device(shown):
    as_json, as_text, kernels = shown
    gpu_ns = sum(end - start for start, end in kernels)
    length_ns = kernels[-1][1] - kernels[0][0]
    none_ns, one_ns, two_ns, _ = width_ns(kernels)
    assert none_ns == 0 < one_ns
    assert two_ns > 0  # else there would be nothing to compare

    overlap, critical = as_json["overlap"], as_json["critical"]

    assert (as_json["iterations"], as_json["iterations_are_marked"]) == (1, True)
    assert as_json["device"]["sm_count"] == SMS
    assert as_json["nodes"]["launch"] == KERNELS
    assert (as_json["gpu_ns"], as_json["gpu_critical_ns"]) == (gpu_ns, length_ns)
    assert (critical["gpu_ns"], critical["length_ns"]) == (length_ns, length_ns)
    assert as_json["data_critical_ns"] == length_ns  # the last kernel reads what both wrote
    assert overlap["cc"] == pytest.approx(2 * two_ns / gpu_ns)
    assert overlap["tot"] == pytest.approx(two_ns / gpu_ns)
    assert as_json["unknown"]["accesses"] == as_json["unknown"]["lost_calls"] == 0
    assert "iteration: 1 marked" in as_text
    assert f"GPU time of all: {gpu_ns / 1e6:g} ms" in as_text
    assert f"longest chain on the GPU: {length_ns / 1e6:g} ms" in as_text
    (cc,) = [line for line in as_text if line.startswith("CC: ")]
    assert cc.endswith(f" {2 * two_ns / gpu_ns:.1%}")
