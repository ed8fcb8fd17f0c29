"""Energy: what NVML is asked and when, and how running and ended jobs get their parts."""

import json
import sqlite3
from dataclasses import replace
from types import SimpleNamespace

import pytest
from past_job import PAST

from tandem import _native
from tandemd.core.energy import EnergyLedger
from tandemd.core.events import ProcessAttached, ProcessExited, UsageSampled
from tandemd.core.model import JobSpec, Usage
from tandemd.core.scheduler import Scheduler
from tandemd.edges.gpus import Instance, NvmlInventory
from tandemd.edges.journal import PastQuery
from tandemd.edges.worker import Worker
from tandemd.loop import Loop
from tandemd.observers.energies import PERIOD_NS, Energies
from tandemd.pasts import Pasts
from tandemd.remembered import Remembered

MS = 1_000_000


class NotSupportedError(Exception):
    """Stands for NVML's error."""


class FakeClock:
    is_virtual = True
    ns = 0

    def now_ns(self):
        return self.ns


class Gpus:
    """The energy counters of the GPUs' drivers."""

    def __init__(self):
        self.counted_mj = {0: 0}
        self.asked = 0

    def read(self):
        self.asked += 1
        return dict(self.counted_mj)


def said_of(*answers, instances=()):
    """NVML's energies for GPUs 0, 1, .., each with this answer or error."""

    def count(handle):
        if isinstance(answers[handle], type):
            raise answers[handle]
        return answers[handle]

    inventory = object.__new__(NvmlInventory)
    of = {number: Instance(gpu=number, gpu_instance=1) for number in instances}
    inventory._found = [
        (SimpleNamespace(index=number, instance=of.get(number)), number)
        for number in range(len(answers))
    ]
    inventory._nvml = SimpleNamespace(
        nvmlDeviceGetTotalEnergyConsumption=count, NVMLError=NotSupportedError
    )
    return inventory


def test_each_gpu_says_what_it_took_and_of_who_does_not_count_there_is_nothing():
    assert said_of(5, NotSupportedError, 0).energy_mj() == {0: 5, 2: 0}


def test_of_instances_nothing_is_asked_for_nvml_counts_whole_gpus():
    assert said_of(5, 7, instances=[1]).energy_mj() == {0: 5}


def test_an_nvml_that_is_too_old_says_nothing():
    inventory = said_of(5)
    del inventory._nvml.nvmlDeviceGetTotalEnergyConsumption

    assert inventory.energy_mj() == {}


def asking(gpus, *, worker=None, pasts=None):
    """Energies that are read from `gpus`, with a core that has no jobs."""
    core = Scheduler()
    return Energies(
        poller=SimpleNamespace(wake=lambda: None),
        clock=FakeClock(),
        worker=worker or Worker("energy", at_once=True),
        core=core,
        pasts=pasts or Pasts(Remembered(None, at_once=True), core.energy),
        read=gpus.read,
    )


def test_they_are_asked_once_a_second():
    gpus = Gpus()
    energies = asking(gpus)

    for now_ns in (0, 100 * MS, PERIOD_NS - 1, PERIOD_NS, PERIOD_NS + 100 * MS):
        energies.look(now_ns)

    assert gpus.asked == 2


@pytest.mark.parametrize("is_owed", [True, False])
def test_when_a_job_has_ended_that_is_owed_something_they_are_asked_once_more(is_owed):
    gpus = Gpus()
    pasts = SimpleNamespace(
        keep=lambda job: is_owed, complete=lambda: None, forget_but=lambda known: None
    )
    energies = asking(gpus, pasts=pasts)
    energies.look(0)

    energies.keep_past(PAST)
    energies.look(100 * MS)
    energies.look(200 * MS)

    assert gpus.asked == 1 + is_owed


def test_where_nobody_can_be_asked_nobody_is():
    energies = asking(Gpus(), worker=SimpleNamespace())  # would fail if used
    energies.read = None

    energies.look(0)

    assert energies.core.energy.of_gpu(0) is None


class Later:
    """A worker that is stuck waiting for NVML."""

    def __init__(self):
        self.errands = []

    def do(self, errand):
        self.errands.append(errand)


def test_an_nvml_that_does_not_answer_is_asked_once():
    worker = Later()
    energies = asking(Gpus(), worker=worker)
    for second in range(3):
        energies.look(second * PERIOD_NS)
    assert len(worker.errands) == 1

    worker.errands[0]()
    assert energies.has_news
    energies.look(3 * PERIOD_NS)
    assert not energies.has_news
    assert energies.core.energy.of_gpu(0) is not None

    energies.look(4 * PERIOD_NS)
    assert len(worker.errands) == 2


def test_what_came_to_who_is_forgotten_while_none_answers_stays_in_its_row(path):
    worker, gpus = Later(), Gpus()
    remembered = Remembered(path, at_once=True)
    energies = asking(gpus, worker=worker)
    ledger = energies.core.energy
    energies.pasts = Pasts(remembered, ledger)
    ledger.read({0: 0}, at_ns=0)
    ledger.charge(7, 0, 25)
    ledger.read({0: 1000}, at_ns=100)
    ledger.charge(7, 0, 25)
    energies.keep_past(PAST)

    energies.look(PERIOD_NS)  # NVML does not answer
    assert not ledger.owes(7)
    assert ledger.of_job(7) is None
    worker.errands[0]()
    energies.look(2 * PERIOD_NS)

    assert kept_of(remembered) == [250]


def test_an_answer_that_fails_is_none_and_they_are_asked_again():
    gpus = Gpus()
    gpus.counted_mj = None  # not a mapping
    energies = asking(gpus)
    energies.look(0)
    assert energies.core.energy.of_gpu(0) is None

    gpus.counted_mj = {0: 3}
    energies.look(PERIOD_NS)

    assert energies.core.energy.of_gpu(0) is not None


def test_who_is_no_longer_known_is_forgotten_after_it_got_its_part():
    gpus, seen = Gpus(), []
    pasts = SimpleNamespace(
        complete=lambda: seen.append(energies.core.energy.of_job(7)), forget_but=lambda known: None
    )
    energies = asking(gpus, pasts=pasts)
    energies.look(0)
    energies.core.energy.charge(7, 0, PERIOD_NS)
    gpus.counted_mj = {0: 500}

    energies.look(PERIOD_NS)

    assert seen == [None, 500]
    assert energies.core.energy.of_job(7) is None


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state.db"


def kept_of(remembered):
    return [job.energy_mj for _, job in remembered.past(PastQuery())]


def test_the_last_part_of_a_job_that_has_ended_comes_into_its_row(path):
    remembered, ledger = Remembered(path, at_once=True), EnergyLedger()
    ledger.read({0: 0}, at_ns=0)
    for job_id in (7, 8):
        ledger.charge(job_id, 0, 25)
    pasts = Pasts(remembered, ledger)

    assert pasts.keep(PAST)
    remembered.keep_past(replace(PAST, began_wall_ns=1))  # an earlier job of the same number
    assert pasts.keep(replace(PAST, job_id=8, name="other"))
    assert kept_of(remembered) == [None, None, None]
    ledger.read({0: 1000}, at_ns=100)
    pasts.complete()

    assert sorted(map(str, kept_of(remembered))) == ["250", "250", "None"]


def test_a_job_of_which_nothing_is_owed_is_written_once(path):
    remembered, ledger = Remembered(path, at_once=True), EnergyLedger()
    ledger.read({0: 0}, at_ns=0)
    ledger.charge(7, 0, 50)
    ledger.read({0: 1000}, at_ns=100)
    pasts = Pasts(remembered, ledger)

    assert not pasts.keep(PAST)
    ledger.read({0: 2000}, at_ns=200)
    pasts.complete()

    assert kept_of(remembered) == [500]


def test_a_part_of_a_gpu_that_did_not_answer_is_waited_for(path):
    remembered, ledger = Remembered(path, at_once=True), EnergyLedger()
    ledger.read({0: 0, 1: 0}, at_ns=0)
    for gpu in (0, 1):
        ledger.charge(7, gpu, 50)
    pasts = Pasts(remembered, ledger)
    pasts.keep(PAST)

    for counted in ({0: 100}, {0: 200, 1: 400}):
        ledger.read(counted, at_ns=100)
        pasts.complete()

    assert kept_of(remembered) == [100 // 2 + 400 // 2]


def test_a_row_of_before_energy_was_known_has_none(path):
    remembered = Remembered(path, at_once=True)
    remembered.keep_past(replace(PAST, energy_mj=5))
    file = sqlite3.connect(path, isolation_level=None)
    (text,) = file.execute("SELECT job FROM past").fetchone()
    row = json.loads(text)
    del row["energy_mj"]
    file.execute("UPDATE past SET job = ?", (json.dumps(row),))

    assert Remembered(path, at_once=True).past(PastQuery()) == [(1, PAST)]


def test_a_job_that_ends_between_two_readings_gets_its_part_of_the_loop():
    gpus, clock, core = Gpus(), FakeClock(), Scheduler()
    loop = Loop(
        scheduler=core,
        clock=clock,
        poller=_native.Poller(),
        channels=SimpleNamespace(perform=lambda action: None),
    )
    loop.energies.read = gpus.read
    loop._round(notable=True)
    loop.note(ProcessAttached(now_ns=0, process_id=1, job_id=7, uid=0, gpu=0, spec=JobSpec()))
    used = Usage(process_id=1, exclusive_ns=100 * MS)
    clock.ns = 200 * MS
    loop.note(UsageSampled(now_ns=clock.ns, samples=(used,)))
    loop.note(ProcessExited(now_ns=clock.ns, process_id=1))
    gpus.counted_mj = {0: 5000}

    clock.ns = PERIOD_NS
    loop._round(notable=True)

    assert core.energy.of_job(7) == 5000 // 10
