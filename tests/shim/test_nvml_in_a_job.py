"""NVML inside a job: with a memory limit it shows the job's share, else the device as it is."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from shim_daemon import FakeDaemon

from tandem import _paths, softgpu

pytest.importorskip("cuda.bindings")
pytestmark = pytest.mark.slow

MIB = 1 << 20
CONTEXT = 8 * MIB  # what a context occupies on the device `tiny`
HOLD = """
import sys
from cuda.bindings import driver as cu
cu.cuInit(0)
cu.cuCtxSetCurrent(cu.cuDevicePrimaryCtxRetain(0)[1])
assert int(cu.cuMemAlloc(int(sys.argv[1]))[0]) == 0
"""
HOLD_ATTACHED = HOLD.replace(
    "assert int",
    "cu.cuMemGetInfo(); print('attached', flush=True); sys.stdin.readline()\nassert int",
)
LOOK = """
import json, os, pynvml
pynvml.nvmlInit()
device = pynvml.nvmlDeviceGetHandleByIndex(0)
one = pynvml.nvmlDeviceGetMemoryInfo(device)
two = pynvml.nvmlDeviceGetMemoryInfo(device, version=pynvml.nvmlMemory_v2)
lists = [
    sorted(each.pid for each in pynvml.__dict__[f"nvmlDeviceGetComputeRunningProcesses{v}"](device))
    for v in ("", "_v2", "_v3")
]
print(json.dumps({
    "one": [one.total, one.used, one.free],
    "two": [two.total, two.used, two.free],
    "lists": lists,
    "gpu": pynvml.nvmlDeviceGetUtilizationRates(device).gpu,
    "name": pynvml.nvmlDeviceGetName(device),
    "pid": os.getpid(),
}), flush=True)
"""
WAIT = "print('ready', flush=True); sys.stdin.read()"


@pytest.fixture
def gpu(tmp_path):
    env = softgpu.environment(folder=tmp_path, clock="real", profile="tiny")
    return env | {"LD_PRELOAD": str(_paths.SHIM), "TANDEM_RUNTIME_DIR": str(tmp_path)}


@contextlib.contextmanager
def holder(env, size, **extra):
    with subprocess.Popen(
        [sys.executable, "-c", HOLD + WAIT, str(size)],
        env=env | extra,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "ready\n"
        yield process.pid
        process.stdin.close()


def look(env, program=LOOK, *arguments, **extra):
    child = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=env | extra,
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    return json.loads(child.stdout)


def test_a_monitor_in_a_job_sees_the_jobs_share_and_processes(gpu):
    with holder(gpu, 16 * MIB, TANDEM_JOB_ID="j-7") as own, holder(gpu, 32 * MIB):
        seen = look(gpu, TANDEM_JOB_ID="j-7", TANDEM_MEMORY="100MiB")

    held = 16 * MIB + CONTEXT
    assert seen["one"] == seen["two"] == [100 * MIB, held, 100 * MIB - held]
    assert seen["lists"] == [[own]] * 3


def test_a_job_whose_id_begins_alike_is_another_one(gpu):
    with holder(gpu, 16 * MIB, TANDEM_JOB_ID="j-77"):
        seen = look(gpu, TANDEM_JOB_ID="j-7", TANDEM_MEMORY="100MiB")

    assert seen["one"] == [100 * MIB, 0, 100 * MIB]
    assert seen["lists"] == [[]] * 3
    assert seen["gpu"] == 0


@pytest.mark.parametrize("extra", [{}, {"TANDEM_MEMORY": "100MiB"}, {"TANDEM_JOB_ID": "j-7"}])
def test_without_a_limit_the_device_is_shown_as_it_is(gpu, extra):
    with holder(gpu, 16 * MIB) as first, holder(gpu, 32 * MIB) as second:
        seen = look(gpu, **extra)
        bare = look({k: v for k, v in gpu.items() if k != "LD_PRELOAD"})

    assert seen["one"][:2] == [1024 * MIB, 48 * MIB + 2 * CONTEXT]
    assert seen["lists"] == [sorted([first, second])] * 3
    assert {**seen, "pid": 0} == {**bare, "pid": 0}


def test_an_attached_process_sees_what_the_driver_tells_it(gpu, tmp_path):
    daemon = FakeDaemon(tmp_path)
    attached = []
    answering = threading.Thread(target=lambda: attached.append(daemon.attach()))
    answering.start()
    with (
        holder(gpu, 32 * MIB, TANDEM_DISABLE="1"),
        subprocess.Popen(
            [sys.executable, "-c", HOLD_ATTACHED + LOOK, str(16 * MIB)],
            env=gpu,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        assert process.stdout.readline() == "attached\n"
        answering.join(20)
        attached[0].process.set_memory_limit(limit_bytes=100 * MIB)
        seen = json.loads(process.communicate("go\n", timeout=20)[0])
    daemon.close()

    assert seen["one"] == seen["two"] == [100 * MIB, 16 * MIB, 84 * MIB]
    assert seen["lists"] == [[process.pid]] * 3


def test_the_library_is_not_loaded_for_those_who_do_not_ask(gpu):
    asked = "import ctypes; ctypes.CDLL(None).nvmlDeviceGetMemoryInfo"
    child = subprocess.run(
        [sys.executable, "-c", asked], env=gpu, capture_output=True, text=True, check=False
    )

    assert child.returncode == 1
    assert "undefined symbol: nvmlDeviceGetMemoryInfo" in child.stderr


def test_a_linked_program_sees_it_too(gpu, program):
    text = """
#include <cstdio>
extern "C" int nvmlInit_v2();
extern "C" int nvmlDeviceGetHandleByIndex_v2(unsigned, void**);
extern "C" int nvmlDeviceGetMemoryInfo(void*, unsigned long long*);
int main() {
  void* device = nullptr;
  unsigned long long memory[3] = {};
  if (nvmlInit_v2() || nvmlDeviceGetHandleByIndex_v2(0, &device)) return 1;
  if (nvmlDeviceGetMemoryInfo(device, nullptr) != 2) return 2;  // NVML's own answer
  if (nvmlDeviceGetMemoryInfo(device, memory)) return 3;
  std::printf("%llu", memory[0]);
}
"""
    library = Path(softgpu.LIBRARIES) / "libnvidia-ml.so.1"
    linked = program(text, str(library))
    child = subprocess.run(
        [linked],
        env=gpu | {"TANDEM_JOB_ID": "j-7", "TANDEM_MEMORY": "100MiB"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (child.returncode, child.stdout) == (0, str(100 * MIB)), child.stderr
