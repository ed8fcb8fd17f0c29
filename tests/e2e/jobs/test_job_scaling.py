"""How jobs scale with SMs according to the daemon's records, and how accurate that is."""

import re
from itertools import groupby
from pathlib import Path

import pytest
from bench import partition_scaling
from running_job import start_together, until

from tandem import softgpu

TRAIN = "pairing.train(gpu, 'crunch', 8)"  # grids of 32 blocks, of which 8 fit on an SM


@pytest.fixture
def image(pairing):
    return pairing


def part_of(place, job):
    with place.client() as client:
        return parts_of(client)[job]


def parts_of(client):
    return {job.display_name: job for gpu in client.partitions() for job in gpu.jobs}


def test_a_job_is_told_how_many_sms_it_has_use_for_and_why_not_before(place):
    job = place.job("train", "-p", "latency", "--slo", "p99=1600us")

    assert "nothing has been recorded of it yet" in part_of(place, "train").doubt
    job.go_on(f"lambda: {TRAIN}")  # a pause would be recorded as part of the current iteration
    until(lambda: part_of(place, "train").scaling, what="a curve")

    found = part_of(place, "train")
    assert found.scaling.sm_counts == (1, 2, 3, 4, 5, 6, 7, 8)
    assert found.scaling.knee_sms == 4  # there all blocks of a kernel are on an SM at once
    assert (found.given_sms, found.asked_sms, found.required_sms) == (8, None, 3)
    assert found.proposed_sms == 3
    shown = place.tandem("partition", "show")
    assert "beyond 4 SMs each SM gains less, and with 3 it keeps its limit" in shown
    explained = place.explain("train")
    assert "ms on 8 SMs, and as long on 4 (predicted from one on 8 SMs" in explained
    assert "beside the others 3 SMs of gpu 0 would fit it" in explained


def test_curves_are_told_of_jobs_that_take_turns(place):
    trainers = [place.job(name) for name in ("one", "other")]
    start_together(dict.fromkeys(trainers, f"for_ever(lambda: {TRAIN})"))

    def curves():
        return [part_of(place, trainer.name).scaling for trainer in trainers]

    until(lambda: all(curves()), what="curves of both")

    for curve in curves():
        assert curve.knee_sms == 4
        assert curve.recorded_ns == pytest.approx(1_000_000, rel=0.25)  # without the waits


SERVE = "pairing.iterate(gpu, 'crunch')"  # marks nothing


def test_pauses_between_requests_are_no_part_of_a_curve(place):
    server = place.job("server", "-p", "latency")
    server.do("setattr(gpu, 'pauses_ms', __import__('itertools').cycle((2, 40, 7, 23)))")
    server.go_on(f"lambda: waiting.pause(next(gpu.pauses_ms)) or {SERVE}")
    until(lambda: part_of(place, "server").scaling, what="a curve")

    found = part_of(place, "server")

    assert found.scaling.recorded_ns == pytest.approx(1_000_000, rel=0.25)
    assert found.scaling.knee_sms == 4
    assert found.measured_ns == found.scaling.recorded_ns


@pytest.fixture(scope="module")
def wide_image(tmp_path_factory):
    path = tmp_path_factory.mktemp("kernels") / "sizing.so"
    softgpu.compile_kernels(Path(partition_scaling.__file__).parent / "partition_scaling.cu", path)
    return path


def start_in_sets(place, image, **options):
    """Start a daemon under which each job has a set of SMs."""
    gpu = {"TANDEM_SOFTGPU_MODE": "mps", "TANDEM_SOFTGPU_PROFILE": "h200"}
    place.env |= gpu | {"TEST_IMAGE": str(image)}
    _, config = place.configured(**options)
    with Path(config).open("a") as file:
        file.write('[gpu."*"]\nmode = "mps+green"\n')
    place.start_daemon("--config", config)


def training(blocks, iterations):
    return f"__import__('sizing').train(gpu, {blocks}, {iterations})"


def train(trainers, jobs):
    """Train in all trainers at the same time, each with its own blocks and iterations."""
    start_together({one: training(*jobs[one.name]) for one in trainers})
    return [one.result() for one in trainers]


def given_in_sets(place, image, **options):
    """Return the parts of a job with small grids and one with large ones, once both are known."""
    start_in_sets(place, image, **options)
    jobs = {"small": (100, 400), "large": (4000, 100)}
    trainers = [place.job(name, "-p", "latency") for name in jobs]

    def is_told():
        train(trainers, jobs)
        curves = [part.scaling for part in parts_of(client).values()]
        return options or (all(curves) and curves[1].source == "probed")

    with place.client() as client:
        client.status()  # connect while the daemon is idle
        until(is_told, what="curves of both")
        train(trainers, jobs)
        return parts_of(client)


LINEAR = 8192  # blocks, 8 on each SM: on 8, 64 and 128 SMs all waves are full


def iteration_ms(sms):
    return 3 * 0.01 * LINEAR / sms


@pytest.mark.slow
def test_the_first_record_on_other_sms_has_no_times_of_those_before(fresh_place, wide_image):
    start_in_sets(fresh_place, wide_image, probe_sets="false")
    job = fresh_place.job("train", "-p", "latency", "--sm", "8")
    job.go_on(f"lambda: {training(LINEAR, 4)}")

    def curve_on(sms):
        def is_told():
            curve = part_of(fresh_place, "train").scaling
            return curve and curve.recorded_sms == sms

        until(is_told, what=f"a record of {sms} SMs")
        return part_of(fresh_place, "train").scaling

    def alone_ms():
        told = []

        def is_told():
            explained = fresh_place.explain("train")
            told.append(re.search(r"the gpu alone would need ([\d.]+) ms", explained))
            return told[-1]

        until(is_told, what="a time")
        return float(told[-1][1])

    small, small_ms = curve_on(8), alone_ms()
    fresh_place.tandem("set", "train", "sm=100%")
    large, large_ms = curve_on(128), alone_ms()

    assert small.recorded_ns == pytest.approx(1e6 * iteration_ms(8), rel=0.1)
    assert large.recorded_ns == pytest.approx(1e6 * iteration_ms(128), rel=0.1)
    assert small_ms == pytest.approx(iteration_ms(8), rel=0.1)
    assert large_ms == pytest.approx(iteration_ms(128), abs=0.05)
    assert large.gamma < 0.05


@pytest.mark.slow
def test_a_probe_lasts_for_the_iteration_that_is_recorded_and_those_around_it(
    fresh_place, wide_image
):
    start_in_sets(fresh_place, wide_image)
    job = fresh_place.job("train", "-p", "latency")

    def is_told():
        job.do(training(LINEAR, 10))
        curve = part_of(fresh_place, "train").scaling
        return curve and curve.source == "probed"

    until(is_told, what="a probe")
    job.do(training(LINEAR, 10))

    kernels = [row for row in fresh_place.ran(job.pid) if row["kind"] == "kernel"]
    stays = [(sms, len(list(rows)) // 3) for sms, rows in groupby(row["sms"] for row in kernels)]
    assert [sms for sms, _ in stays] == [128, 40, 128]
    assert stays[1][1] <= 4


@pytest.mark.slow
def test_a_job_whose_iterations_take_seconds_is_probed_too(fresh_place, wide_image):
    start_in_sets(fresh_place, wide_image)
    job = fresh_place.job("train", "-p", "latency")

    def told():
        job.do(f"[{training(LINEAR, 1)} and waiting.pause(3_000) for _ in range(12)]")
        return re.search("its probe on 40 SMs is .*", fresh_place.explain("train"))

    until(told, what="the end of a probe")

    assert "is over: an iteration took" in told()[0]


@pytest.mark.slow
def test_equal_jobs_to_which_all_sms_matter_are_found_so_and_share_them(fresh_place, wide_image):
    start_in_sets(fresh_place, wide_image)
    jobs = dict.fromkeys(("one", "other"), (LINEAR, 50))
    trainers = [fresh_place.job(name, "-p", "latency") for name in jobs]

    def curves():
        train(trainers, jobs)
        return [part.scaling for part in parts_of(client).values()]

    with fresh_place.client() as client:
        client.status()  # connect while the daemon is idle
        until(
            lambda: all(curve and curve.source == "probed" for curve in curves()),
            what="probes of both",
        )
        for _ in range(3):  # later records change nothing
            assert [curve.gamma for curve in curves()] == pytest.approx([0, 0], abs=0.05)
            trainers[0].do("waiting.pause(10_000)")
        sizes = [part.given_sms for part in parts_of(client).values()]

    assert sizes == [64, 64]


@pytest.mark.slow
def test_jobs_get_sets_of_the_size_that_their_probed_curves_call_for(fresh_place, wide_image):
    found = given_in_sets(fresh_place, wide_image)

    assert {name: part.given_sms for name, part in found.items()} == {"small": 16, "large": 112}
    assert found["large"].scaling.gamma < 0.05
    told = fresh_place.explain("large")
    assert "SMs for one iteration, to see how it scales" in told
    assert "SMs is over: an iteration took" in told
    assert "it gets 14 of 16 groups of SMs" in told


@pytest.mark.slow
def test_jobs_share_all_sms_where_sizing_is_off(fresh_place, wide_image):
    found = given_in_sets(fresh_place, wide_image, size_sets="false", probe_sets="false")

    assert {name: part.given_sms for name, part in found.items()} == {"small": 128, "large": 128}


@pytest.mark.slow
def test_the_time_on_fewer_sms_is_told_from_records_of_all():
    found = partition_scaling.measure(
        percentages=(10, 40, 70), workloads=("odd_waves", "two_streams", "mixed")
    )

    assert len(found["bars"]) == 6
    assert [name for name, one in found["bars"].items() if not one["ok"]] == []
