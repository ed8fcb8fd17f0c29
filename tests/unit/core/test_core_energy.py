"""How a GPU's energy is attributed to jobs."""

import pytest

from tandemd.core.energy import EnergyLedger, Metered
from tandemd.core.events import ProcessAttached, ProcessExited, UsageSampled
from tandemd.core.model import JobSpec, Usage
from tandemd.core.scheduler import Scheduler

ANN, BOB = 1, 2  # job ids
J = 1000  # one joule in mJ


@pytest.fixture
def ledger():
    """A ledger whose GPU was read at time 0, with the driver's counter at 70 J."""
    ledger = EnergyLedger()
    ledger.read({0: 70 * J}, at_ns=0)
    return ledger


def metered(total, unattributed):
    return Metered(total_mj=total, unattributed_mj=unattributed)


def test_a_job_gets_the_part_of_the_time_in_which_its_work_ran(ledger):
    ledger.charge(ANN, 0, 500)
    ledger.charge(BOB, 0, 200)
    ledger.charge(ANN, 0, 100)

    ledger.read({0: 80 * J}, at_ns=1000)

    assert (ledger.of_job(ANN), ledger.of_job(BOB)) == (6 * J, 2 * J)
    assert ledger.of_gpu(0) == metered(10 * J, 2 * J)


def test_figures_add_up_over_readings(ledger):
    for second in (1, 2):
        ledger.charge(ANN, 0, 50)
        ledger.read({0: (70 + 3 * second) * J}, at_ns=100 * second)

    assert ledger.of_job(ANN) == 3 * J
    assert ledger.of_gpu(0) == metered(6 * J, 3 * J)


def test_what_does_not_divide_is_nobodys(ledger):
    for job in (ANN, BOB, 3):
        ledger.charge(job, 0, 1)

    ledger.read({0: 70 * J + 100}, at_ns=3)

    assert ledger.of_job(ANN) == 33
    assert ledger.of_gpu(0) == metered(100, 1)


def test_more_gpu_time_than_there_was_is_not_more_energy(ledger):
    ledger.charge(ANN, 0, 300)
    ledger.charge(BOB, 0, 100)

    ledger.read({0: 78 * J}, at_ns=200)

    assert (ledger.of_job(ANN), ledger.of_job(BOB)) == (6 * J, 2 * J)


def test_two_readings_at_the_same_time_lose_nothing(ledger):
    ledger.read({0: 71 * J}, at_ns=0)

    assert ledger.of_gpu(0) == metered(J, J)


def test_a_counter_that_began_anew_takes_nothing_back(ledger):
    ledger.charge(ANN, 0, 100)
    ledger.read({0: 72 * J}, at_ns=100)
    ledger.charge(ANN, 0, 50)
    ledger.read({0: 4 * J}, at_ns=200)
    between = ledger.of_job(ANN), ledger.of_gpu(0)
    ledger.charge(ANN, 0, 100)
    ledger.read({0: 5 * J}, at_ns=300)

    assert between == (2 * J, metered(2 * J, 0))
    assert (ledger.of_job(ANN), ledger.of_gpu(0)) == (3 * J, metered(3 * J, 0))


def test_where_no_energy_is_read_nobody_has_any(ledger):
    ledger.charge(ANN, 1, 100)
    assert not ledger.owes(ANN)

    ledger.read({0: 80 * J}, at_ns=100)

    assert ledger.of_job(ANN) is None
    assert ledger.of_gpu(1) is None
    assert ledger.of_gpu(0) == metered(10 * J, 10 * J)


def test_a_reading_that_fails_is_made_good_by_the_next(ledger):
    ledger.charge(ANN, 0, 100)
    ledger.read({}, at_ns=100)
    assert ledger.of_job(ANN) is None
    assert ledger.owes(ANN)

    ledger.read({0: 80 * J}, at_ns=200)

    assert ledger.of_job(ANN) == 5 * J
    assert not ledger.owes(ANN)


def test_who_is_forgotten_leaves_the_others_theirs(ledger):
    ledger.charge(ANN, 0, 50)
    ledger.charge(BOB, 0, 50)
    ledger.read({0: 80 * J}, at_ns=100)
    ledger.charge(ANN, 0, 50)
    ledger.charge(BOB, 0, 50)

    ledger.forget_but({BOB})
    ledger.read({0: 90 * J}, at_ns=200)

    assert ledger.of_job(ANN) is None
    assert ledger.of_job(BOB) == 10 * J
    assert ledger.of_gpu(0) == metered(20 * J, 5 * J)


def test_a_job_of_several_processes_gets_the_parts_of_all_also_of_those_that_left():
    core = Scheduler()
    core.energy.read({0: 0, 1: 0}, at_ns=0)
    for number in (1, 2):
        core.handle(
            ProcessAttached(
                now_ns=0, process_id=number, job_id=7, uid=1, gpu=number - 1, spec=JobSpec()
            )
        )
    left = Usage(process_id=1, exclusive_ns=10, shared_ns=15)  # its last report as it leaves
    core.handle(UsageSampled(now_ns=50, samples=(left,)))
    core.handle(ProcessExited(now_ns=50, process_id=1))
    core.handle(UsageSampled(now_ns=90, samples=(Usage(process_id=2, exclusive_ns=50),)))

    core.energy.read({0: 4 * J, 1: 6 * J}, at_ns=100)

    assert core.energy.of_job(7) == 4 * J // 4 + 6 * J // 2
