"""The shim in front of NVIDIA's own driver, without a card: the driver's answers stay the same."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import tandem

ASKING = Path(__file__).parent / "asking.py"
RECORDED = Path(__file__).parents[1] / "data" / "nvidia"
SHIM = Path(tandem.__file__).with_name("libtandem.so")

RUNTIME = """
from cuda.bindings import runtime
print(runtime.cudaGetDeviceCount(), runtime.cudaDriverGetVersion(), runtime.cudaMalloc(64))
print(runtime.cudaFree(0), runtime.cudaGetLastError())
"""
DRIVER = """
from cuda.bindings import driver
print(driver.cuInit(0), driver.cuDeviceGetCount(), driver.cuCtxGetCurrent(), driver.cuMemAlloc(64))
"""
NVML = """
import pynvml
for call in (pynvml.nvmlInit, pynvml.nvmlDeviceGetCount, pynvml.nvmlSystemGetDriverVersion):
    try:
        print(call())
    except pynvml.NVMLError as error:
        print(error.value, error)
"""


def ask(env):
    return json.loads(said_by([str(ASKING)], env))


def said_by(arguments, env):
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def managed(bare, tmp_path_factory):
    """An environment with the shim but without a daemon."""
    folder = tmp_path_factory.mktemp("runtime")
    folder.chmod(0o700)
    return {**bare, "LD_PRELOAD": str(SHIM), "TANDEM_RUNTIME_DIR": str(folder)}


@pytest.fixture(scope="module")
def answers(bare):
    return ask(bare)


def test_its_answers_are_the_same_under_the_shim(answers, managed):
    assert ask(managed) == answers


def test_the_shim_stands_before_it(managed):
    """Otherwise the same answers would prove nothing."""
    program = """
import ctypes
class Info(ctypes.Structure):
    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p),
                ("symbol", ctypes.c_char_p), ("address", ctypes.c_void_p)]
driver, info, found = ctypes.CDLL("libcuda.so.1"), Info(), ctypes.c_void_p()
assert driver.cuGetProcAddress_v2(b"cuLaunchKernel", ctypes.byref(found), 12000, 0, None) == 0
for place in (found, ctypes.cast(driver.cuLaunchKernel, ctypes.c_void_p)):
    assert ctypes.CDLL(None).dladdr(place, ctypes.byref(info))
    print(info.file.decode().rpartition("/")[2])
"""
    assert said_by(["-c", program], managed).split() == ["libtandem.so"] * 2


@pytest.mark.parametrize("program", [RUNTIME, DRIVER, NVML], ids=["runtime", "driver", "nvml"])
def test_clients_are_told_the_same_under_the_shim(bare, managed, program):
    assert said_by(["-c", program], managed) == said_by(["-c", program], bare)


def test_what_is_recorded_of_this_version_is_what_it_answers(answers, version):
    recorded = RECORDED / f"driver-{version}.json"
    if not recorded.exists():
        pytest.skip(f"of {version} nothing is recorded")
    assert answers == json.loads(recorded.read_text())
