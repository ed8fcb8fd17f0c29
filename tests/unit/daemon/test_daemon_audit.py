import json
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from tandem import softgpu
from tandemd.core.events import MemoryAudited
from tandemd.edges.gpus import Holdings, NvmlInventory
from tandemd.observers.auditor import EARLY_LOOKS, EARLY_S, PERIOD_S, Auditor
from tandemd.observers.strangers import Strangers

HOLDING = """
import json, os
from cuda.bindings import driver as cu
from tandemd.edges.gpus import find_inventory
cu.cuInit(0)
for device, size in ((0, 64 << 20), (1, 32 << 20)):
    cu.cuCtxSetCurrent(cu.cuDevicePrimaryCtxRetain(device)[1])
    cu.cuMemAlloc(size)
print(json.dumps([os.getpid(), *find_inventory().holdings().by_pid.items()]))
"""


class NvmlError(Exception):
    pass


class Held:
    """What NVML says; tells when it is asked."""

    def __init__(self, held, is_complete, tell=lambda: None):
        running = {0: frozenset(held)}
        self.found = Holdings(held, is_complete=is_complete, running=running)
        self.tell = tell

    def holdings(self):
        self.tell()
        return self.found


class Said:
    """What processes say that they have, one answer after the other, the last for good."""

    def __init__(self, *answers):
        self.answers = list(answers)

    def memory_claims(self):
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def look(held, *, is_complete=True, said=({},)):
    handled = []
    loop = SimpleNamespace(
        post=lambda errand: errand(),
        handle=handled.append,
        clock=SimpleNamespace(now_ns=lambda: 7),
        poller=Said(*said),
        strangers=Strangers(),
    )
    info = {1: SimpleNamespace(pid=100), 2: SimpleNamespace(pid=200)}
    Auditor(
        loop=loop, sessions=SimpleNamespace(info=info), inventory=Held(held, is_complete)
    ).look()
    return handled


def test_attached_processes_are_audited_and_no_others():
    held = {200: (5, 6), 300: (9,)}

    assert look(held) == [MemoryAudited(now_ns=7, held_bytes=((1, ()), (2, (5, 6))))]


def test_where_the_driver_does_not_say_all_whom_it_does_not_name_is_not_audited():
    held = {200: (5, 6)}

    assert look(held, is_complete=False) == [
        MemoryAudited(now_ns=7, held_bytes=((2, (5, 6)),), is_complete=False)
    ]


@pytest.mark.parametrize("silent", [None, NvmlError])
def test_a_figure_that_the_driver_does_not_say_is_no_nothing(silent):
    def running(handle):
        if handle == 1 and silent is NvmlError:
            raise NvmlError
        said = silent if handle == 1 else 5
        return [SimpleNamespace(pid=100, usedGpuMemory=said)]

    inventory = object.__new__(NvmlInventory)
    gpus = [SimpleNamespace(index=index) for index in (4, 7)]
    inventory._found, inventory._silent = [(gpus[0], 0), (gpus[1], 1)], frozenset()
    inventory._nvml = SimpleNamespace(
        nvmlDeviceGetComputeRunningProcesses=running, NVMLError=NvmlError
    )

    found = inventory.holdings()

    assert found.by_pid[100][0] == 5
    assert found.running[4] == {100}
    assert (7 in found.running) is (silent is None)
    assert not found.is_complete


@pytest.mark.parametrize(
    "said",
    [({1: (5, 6), 2: (0, 0)}, {1: (3, 3), 2: (4, 4)}), ({1: (3, 3)}, {1: (5, 6), 2: (4, 4)})],
    ids=["freed", "took"],
)
def test_what_a_process_took_or_freed_while_the_driver_was_asked_counts(said):
    (event,) = look({100: (5,)}, said=said)

    assert event.claims == {1: (5, 6), 2: (4, 4)}


def test_the_core_is_not_woken_for_nothing():
    assert look({}) == look({300: (9,)}) == []


def test_a_new_process_is_looked_at_soon_and_several_times():
    auditor = Auditor(loop=None, sessions=SimpleNamespace(info={}), inventory=Held({}, True))
    assert auditor.rest_s() == PERIOD_S

    auditor.newcomer()
    assert [auditor.rest_s() for _ in range(EARLY_LOOKS)] == [EARLY_S] * EARLY_LOOKS
    assert auditor.rest_s() == PERIOD_S


def test_whoever_attaches_ends_a_long_rest(monkeypatch):
    monkeypatch.setattr("tandemd.observers.auditor.PERIOD_S", 3600.0)
    looks = threading.Semaphore(0)
    auditor = Auditor(
        loop=SimpleNamespace(poller=Said({}), post=lambda errand: None),
        sessions=SimpleNamespace(info={}),
        inventory=Held({}, True, looks.release),
    )
    thread = threading.Thread(target=auditor.run)
    thread.start()
    try:
        looks.acquire()
        auditor.newcomer()
        assert looks.acquire(timeout=60)
    finally:
        auditor.stop()
        thread.join()


def test_nvml_says_what_a_process_holds_on_each_gpu(tmp_path):
    pytest.importorskip("cuda.bindings")
    env = softgpu.environment(folder=tmp_path, clock="real", profile="tiny", devices=2)
    done = subprocess.run(
        [sys.executable, "-c", HOLDING], env=env, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    pid, *held = json.loads(done.stdout)
    assert held == [[pid, [(64 + 8) << 20, (32 + 8) << 20]]]  # 8: what a context occupies
