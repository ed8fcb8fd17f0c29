import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

from tandem import softgpu
from tandemd.auditor import EARLY_LOOKS, EARLY_S, PERIOD_S, Auditor
from tandemd.core.events import MemoryAudited
from tandemd.edges.gpus import NoGpus

HOLDING = """
import json, os
from cuda.bindings import driver as cu
from tandemd.edges.gpus import NvmlInventory
cu.cuInit(0)
for device, size in ((0, 64 << 20), (1, 32 << 20)):
    cu.cuCtxSetCurrent(cu.cuDevicePrimaryCtxRetain(device)[1])
    cu.cuMemAlloc(size)
print(json.dumps([os.getpid(), *NvmlInventory().held_bytes().items()]))
"""


class Held(NoGpus):
    def __init__(self, held):
        self.held = held

    def held_bytes(self):
        return self.held


def look(held):
    handled = []
    loop = SimpleNamespace(
        post=lambda errand: errand(),
        handle=handled.append,
        clock=SimpleNamespace(now_ns=lambda: 7),
    )
    info = {1: SimpleNamespace(pid=100), 2: SimpleNamespace(pid=200)}
    Auditor(loop=loop, sessions=SimpleNamespace(info=info), inventory=Held(held)).look()
    return handled


def test_attached_processes_are_audited_and_no_others():
    held = {200: (5, 6), 300: (9,)}

    assert look(held) == [MemoryAudited(now_ns=7, held_bytes=((2, (5, 6)),))]


def test_the_core_is_not_woken_for_nothing():
    assert look({}) == look({300: (9,)}) == []


def looks(auditor, seconds):
    return sum(auditor.is_due() for _ in range(round(seconds / EARLY_S)))


def test_a_new_process_is_looked_at_soon_and_several_times():
    info = {}
    sessions = SimpleNamespace(info=info)
    auditor = Auditor(loop=None, sessions=sessions, inventory=NoGpus())
    assert looks(auditor, 4 * PERIOD_S) == 4

    info[1] = SimpleNamespace(pid=100)
    assert looks(auditor, EARLY_LOOKS * EARLY_S) == EARLY_LOOKS
    info.clear()
    assert looks(auditor, 4 * PERIOD_S) == 4


def test_nvml_says_what_a_process_holds_on_each_gpu(tmp_path):
    pytest.importorskip("cuda.bindings")
    env = softgpu.environment(folder=tmp_path, clock="real", profile="tiny", devices=2)
    done = subprocess.run(
        [sys.executable, "-c", HOLDING], env=env, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    pid, *held = json.loads(done.stdout)
    assert held == [[pid, [(64 + 8) << 20, (32 + 8) << 20]]]  # 8: what a context occupies
