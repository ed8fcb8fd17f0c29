"""Trainers whose memory does not fit together, on the virtual clock."""

import pytest

from tandem.demo.memory.conductor import PROFILE, SWAPPABLE
from tandem.demo.memory.report import Comparison, Results, build_report
from tandem.demo.memory.scenario import Stage, measure
from tandem.demo.memory.settings import TRAINERS, Pace, paces
from tandem.demo.place import find_place

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SECONDS = 2.2  # the rate at which memory moves is only known after the first half second
BRIEFLY = Pace(iterations=6)  # enough for the first still to run when the second begins


class Bench:
    """A measured device, and how much work the trainers do on it."""

    def __init__(self, folder):
        place = find_place(clock="virtual", folder=folder, profile=PROFILE)
        self.measured = measure(place, folder / "measure")
        self.capacity = self.measured["memory_bytes"]
        self.stage = Stage(place=place, folder=folder, say=lambda text: None)
        self.trainer, _ = paces(seconds=SECONDS, iteration_ns=self.measured["iteration_ns"])

    def run(self, name, pace=None, **options):
        return self.stage.run(name, TRAINERS, pace or self.trainer, **options)


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    return Bench(tmp_path_factory.mktemp("memory"))


@pytest.fixture(scope="module")
def comparison(bench):
    return Comparison(
        unmanaged=bench.run("unmanaged", BRIEFLY),
        serial=[bench.run("alone", roles=["first"])] * 2,  # the two are alike
        ticktock=bench.run("ticktock", options=SWAPPABLE),
    )


def fates(outcome):
    return [(job.exit_code, job.correct, job.error) for job in outcome.jobs]


DIED = (1, None, "CUDA_ERROR_OUT_OF_MEMORY")
FINISHED = (0, True, "")


def test_without_tandem_the_second_trainer_dies(comparison, bench):
    assert fates(comparison.unmanaged) == [FINISHED, DIED]
    assert comparison.unmanaged.peak_bytes <= bench.capacity


def test_under_tandem_but_not_swappable_it_dies_too(bench):
    outcome = bench.run("not-swappable", BRIEFLY, options=())

    assert fates(outcome) == [FINISHED, DIED]
    assert outcome.swapped_bytes == 0


def test_in_turns_both_finish_with_every_checksum_right(comparison, bench):
    assert fates(comparison.ticktock) == [FINISHED, FINISHED]
    each = comparison.serial[0].peak_bytes
    assert each < comparison.ticktock.peak_bytes <= bench.capacity < 2 * each
    assert comparison.is_right


def test_turns_take_little_longer_than_one_after_the_other(comparison):
    assert comparison.ticktock_vs_serial <= 1.1


def test_memory_moves_at_the_rate_of_pinned_copies(comparison, bench):
    moved = comparison.ticktock
    excess = 2 * comparison.serial[0].peak_bytes - bench.capacity
    assert moved.swapped_bytes >= 4 * 2 * excess, "they take turns, out and in"

    report = build_report(
        Results(
            place=bench.stage.place,
            memory_bytes=bench.capacity,
            link_bytes_s=bench.measured["link_bytes_s"],
            trainers=comparison,
            notebooks=comparison,
        )
    )
    assert 0.8 <= report["scenarios"]["ticktock"]["swap_rate_vs_pinned"] <= 1.01
