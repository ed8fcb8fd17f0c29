"""How the part `lifecycle` handles counts when a process it asks fails midway."""

from contextlib import contextmanager

import pytest
from bench.gpu.parts.accounting import KINDS, MOST_FAILURES, Run, accounts, ratio

from tandem.demo.process import WorkerError

MIB = 1 << 20


class Machine:
    """Stands for the process, NVML and the daemon; the process dies at the kinds in `broken`."""

    pid = 77

    def __init__(self, broken=(), listed=("77",)):
        self.used_bytes = 0
        self.starts = []
        self._broken, self._listed = broken, listed
        self._left, self._kind, self._holds = [], "", False

    @contextmanager
    def start(self, kinds):
        self.starts.append(tuple(kinds))
        self._left, self._holds, self.used_bytes = list(kinds), False, 600 * MIB
        yield Run(worker=self, reader=Reader(self), context_bytes=600 * MIB, job_bytes=self.job)

    def go(self):
        self._holds = not self._holds
        if self._holds:
            self._kind = self._left.pop(0)
        self.used_bytes += 4 * MIB if self._holds else -4 * MIB

    def wait_for(self, event, *, deadline_s):
        if self._kind in self._broken:
            raise WorkerError("ended with code 1")
        assert event == ("held" if self._holds else "freed")
        return {"kind": self._kind, "result": "CUDA_SUCCESS", "asked_bytes": 4 * MIB - 96}

    def job(self):
        return 3 * MIB if self._holds else 0


class Reader:
    def __init__(self, machine):
        self._machine = machine

    def go(self):
        pass

    def wait_for(self, event, *, deadline_s):
        held = dict.fromkeys(self._machine._listed)
        return {"used_bytes": self._machine.used_bytes, "result": "success", "processes": held}


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr("bench.gpu.parts.accounting.LOOK_S", 0.0)


def test_every_allocator_is_asked_of_one_process():
    machine = Machine()

    found = accounts(machine.start)

    assert machine.starts == [KINDS]
    assert found["context_bytes"] == 600 * MIB
    assert found["linear"]["nvml_bytes"] == 4 * MIB
    assert found["linear"]["nvml_vs_asked"] == 1.0
    assert found["linear"]["job_vs_nvml"] == 0.75
    assert found["linear"]["left_bytes"] == 0


def test_one_at_which_the_process_ends_leaves_the_others():
    machine = Machine(broken=("pool",))

    found = accounts(machine.start)

    at = KINDS.index("pool")
    assert machine.starts == [KINDS, KINDS[at + 1 :]]
    assert "ended with code 1" in found["pool"]["error"]
    assert all("job_vs_nvml" in found[kind] for kind in KINDS if kind != "pool")


def test_after_some_failures_no_more_is_asked():
    machine = Machine(broken=KINDS)

    found = accounts(machine.start)

    assert len(machine.starts) == MOST_FAILURES
    assert set(KINDS) <= set(found)
    assert all("error" in found[kind] for kind in KINDS)


@pytest.mark.parametrize(("listed", "is_listed"), [(("77",), True), (("5",), False), ((), False)])
def test_whether_nvml_lists_the_process(listed, is_listed):
    found = accounts(Machine(listed=listed).start)

    assert found["is_listed"] is is_listed
    assert found["listed_bytes_known"] is False  # it is listed without its memory
    assert found["processes"] == len(listed)


def test_nothing_is_divided_by_nothing():
    assert ratio(3, 4) == 0.75
    assert ratio(0, 0) == "both are 0"
    assert ratio(5, 0) == "5 over 0"
