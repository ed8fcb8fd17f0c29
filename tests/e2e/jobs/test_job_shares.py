"""What a class is owed beside a higher class that always has work; on the virtual clock."""

import itertools

import pytest

pytestmark = pytest.mark.slow

MIN_SHARE = 0.1
LASTING_MS, PAUSE_MS = 6_000, 0.5
#: A class that is owed time waits up to a second for its turn; a shorter gap does not separate
#: turns.
BETWEEN_TURNS_NS = 100_000_000


def starts_of_turns(kernels) -> list[int]:
    """Return when each run of kernels began that followed a long wait."""
    return [
        after["t_start_ns"]
        for before, after in itertools.pairwise(kernels)
        if after["t_start_ns"] - before["t_end_ns"] > BETWEEN_TURNS_NS
    ]


def share(kernels, begin_ns, end_ns) -> float:
    """Return the part of that time in which the kernels were on the GPU."""
    within = [one for one in kernels if begin_ns <= one["t_start_ns"] < end_ns]
    return sum(one["t_end_ns"] - one["t_start_ns"] for one in within) / (end_ns - begin_ns)


def test_a_job_that_pauses_between_its_kernels_gets_its_share(fresh_place):
    """It wants nothing for a moment after each kernel, and is still owed as much as before."""
    place = fresh_place
    place.start_daemon(*place.configured(min_share=MIN_SHARE))
    urgent, patient = place.job("urgent"), place.job("patient", "-p", "batch")
    urgent.go_on("lambda: waiting.short(gpu)")

    patient.do(f"waiting.short_for(gpu, {LASTING_MS}, {PAUSE_MS})")

    # Count whole turns only: a share is the part of the time from one turn's start to a later
    # one's.
    turns = starts_of_turns(place.ran(patient.pid))
    assert len(turns) >= 3
    its_share = share(place.ran(patient.pid), turns[0], turns[-1])
    # It gets no credit for its own pauses within its turns, so a little less than was promised.
    assert 0.8 * MIN_SHARE < its_share < 1.2 * MIN_SHARE
    assert share(place.ran(urgent.pid), turns[0], turns[-1]) > 0.8
