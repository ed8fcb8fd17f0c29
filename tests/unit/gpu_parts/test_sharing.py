"""How the part `lifecycle` counts memory that two processes share."""

import pytest
from bench.gpu.parts import accounting
from bench.gpu.parts.accounting import Run
from bench.gpu.parts.sharing import NOT_LISTED, times_counted

ASKED = 64
STEPS = ("before", "made", "opened", "freed")


class Machine:
    """Stands for both processes; `in_list`, `in_job`: what NVML and the job add on opening."""

    pid = 7

    def __init__(self, *, in_list=0, in_job=0, listed=("5", "7")):
        self.step = 0
        self._in_list, self._in_job, self._listed = in_list, in_job, listed

    def go(self):
        self.step += 1

    def wait_for(self, event, *, deadline_s):
        assert event == STEPS[self.step]
        return {"event": event, "owner": 5, "asked_bytes": ASKED}

    @property
    def _is_made(self):
        return self.step in (1, 2)

    @property
    def _is_open(self):
        return self.step == 2

    def job(self):
        return 10 + ASKED * self._is_made + self._in_job * self._is_open

    def said(self):
        held = {"5": 3 + ASKED * self._is_made, "7": 3 + self._in_list * self._is_open}
        listed = {pid: held[pid] for pid in self._listed}
        return {"used_bytes": 100 + ASKED * self._is_made, "processes": listed}


class Reader:
    def __init__(self, machine):
        self._machine = machine

    def go(self):
        pass

    def wait_for(self, event, *, deadline_s):
        return {"event": event, **self._machine.said()}


def counted(machine):
    run = Run(worker=machine, reader=Reader(machine), context_bytes=0, job_bytes=machine.job)
    return times_counted(run)


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(accounting, "LOOK_S", 0.0)


def test_memory_of_two_processes_counts_once_where_it_was_made():
    found = counted(Machine())

    assert found["made"] == found["opened"] == {"device": 1.0, "processes": 1.0, "job": 1.0}
    assert found["left_bytes"] == 0


def test_whoever_counts_it_for_both_is_found_out():
    assert counted(Machine(in_list=ASKED))["opened"]["processes"] == 2.0
    assert counted(Machine(in_job=ASKED))["opened"]["job"] == 2.0


@pytest.mark.parametrize("listed", [(), ("5",)])
def test_a_list_without_one_of_them_says_nothing(listed):
    assert counted(Machine(listed=listed))["opened"]["processes"] == NOT_LISTED
