import json
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from tandem import softgpu
from tandemd.core.events import MemoryAudited
from tandemd.edges.gpus import Holdings, NvmlInventory
from tandemd.observers.auditor import EARLY_LOOKS, EARLY_S, PERIOD_S, STUCK_S, Auditor
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
    value = 3  # NVML_ERROR_NOT_SUPPORTED


class LostError(NvmlError):
    value = 15  # NVML_ERROR_GPU_IS_LOST


class Held:
    """Stands for NVML: returns its holdings, and calls `tell` when it is asked."""

    def __init__(self, held, is_complete, tell=lambda: None):
        running = {0: frozenset(held)}
        self.found = Holdings(held, is_complete=is_complete, running=running)
        self.tell = tell

    def holdings(self):
        self.tell()
        return self.found


class Said:
    """What processes claim to hold: one answer after the other, the last one repeatedly."""

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


def holdings(*said):
    """Holdings of GPUs 4, 7, .., each of which reports this much for one process, or raises."""

    def running(handle):
        if isinstance(said[handle], type):
            raise said[handle]
        return [SimpleNamespace(pid=100, usedGpuMemory=said[handle])]

    inventory = object.__new__(NvmlInventory)
    gpus = [SimpleNamespace(index=index, name=str(index)) for index in (4, 7)][: len(said)]
    inventory._found = [(gpu, handle) for handle, gpu in enumerate(gpus)]
    inventory._silent = frozenset()
    inventory._nvml = SimpleNamespace(
        nvmlDeviceGetComputeRunningProcesses=running, NVMLError=NvmlError
    )
    return inventory.holdings()


@pytest.mark.parametrize("silent", [None, NvmlError])
def test_a_figure_that_the_driver_does_not_say_is_no_nothing(silent):
    found = holdings(5, silent)

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


@pytest.mark.parametrize(
    ("said", "failed"),
    [
        ((5, 5), False),
        ((5, LostError), False),  # the other GPU still counts
        ((NvmlError, LostError), False),  # one GPU works, but does not say what runs on it
        ((LostError, LostError), True),
        ((LostError,), True),
        ((), False),  # a machine without GPUs
    ],
)
def test_nvml_has_failed_once_no_gpu_works_of_those_there_are(said, failed):
    assert bool(holdings(*said).failure) is failed


def auditing(inventory):
    loop = SimpleNamespace(poller=Said({}), post=lambda errand: None)
    return Auditor(loop=loop, sessions=SimpleNamespace(info={}), inventory=inventory)


def test_whether_nvml_answers_is_known_by_the_newest_look_and_changes_are_logged():
    inventory = Held({}, True)
    auditor = auditing(inventory)
    seen = []

    with capture_logs() as logs:
        for failure in ("", "gpu 0: lost", "gpu 0: lost", ""):
            inventory.found = Holdings(failure=failure)
            auditor.look()
            seen.append(auditor.is_answered)

    assert seen == [True, False, False, True]
    assert [(entry["log_level"], entry.get("reason")) for entry in logs] == [
        ("error", "gpu 0: lost"),
        ("info", None),
    ]


def test_an_answer_that_does_not_come_is_none(monkeypatch):
    now_s, seen = [0.0], []
    monkeypatch.setattr("tandemd.observers.auditor.time.monotonic", lambda: now_s[0])

    def hang():
        for passed_s in (STUCK_S, 0.1):
            now_s[0] += passed_s
            seen.append(auditor.is_answered)

    auditor = auditing(Held({}, True, hang))
    auditor.look()

    assert seen == [True, False]
    assert auditor.is_answered


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
    assert held == [[pid, [(64 + 8) << 20, (32 + 8) << 20]]]  # 8: the size of a context
