"""How jobs scale with SMs, told by the daemon from their records, and how right that is."""

import pytest
from bench import partition_scaling
from running_job import HERE, until

from tandem import softgpu

TRAIN = "pairing.train(gpu, 'crunch', 8)"  # grids of 32 blocks, of which 8 fit on an SM


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    path = tmp_path_factory.mktemp("kernels") / "pairing.so"
    softgpu.compile_kernels(HERE / "pairing.cu", path)
    return path


def part_of(place, job):
    with place.client() as client:
        (found,) = (j for gpu in client.partitions() for j in gpu.jobs if j.display_name == job)
    return found


def test_a_job_is_told_how_many_sms_it_has_use_for_and_why_not_before(place):
    job = place.job("train", "-p", "latency", "--slo", "p99=1600us")

    assert "nothing was recorded of it yet" in part_of(place, "train").doubt
    until(lambda: job.do(TRAIN) and part_of(place, "train").scaling, what="a curve")

    found = part_of(place, "train")
    assert found.scaling.sm_counts == (1, 2, 3, 4, 5, 6, 7, 8)
    assert found.scaling.knee_sms == 4  # all blocks of a kernel are on an SM
    assert (found.given_sms, found.asked_sms, found.required_sms) == (8, None, 3)
    assert found.proposed_sms == 3
    shown = place.tandem("partition", "show")
    assert "beyond 4 SMs more gain little, and 3 keep its limit" in shown
    explained = place.tandem("explain", "train")
    assert "ms on 4, beyond which more gain little (predicted from one on 8 SMs" in explained
    assert "beside the others on gpu 0 3 SMs would fit it" in explained


@pytest.mark.slow
def test_the_time_on_fewer_sms_is_told_from_records_of_all():
    found = partition_scaling.measure(
        percentages=(10, 40, 70), workloads=("odd_waves", "two_streams", "mixed")
    )

    assert len(found["bars"]) == 6
    assert [name for name, one in found["bars"].items() if not one["ok"]] == []
