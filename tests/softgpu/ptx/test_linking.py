"""Two objects that nvcc made with -rdc=true become one program."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from runner import FOLDERS

from tandem import softgpu

pytest.importorskip("cuda.bindings")

PREAMBLE = """
import ctypes
from cuda.bindings import driver as cu
from ptx_device import DATA, Device, OnDevice, ok, refused
device = Device()
log = bytes(1024)
options = [cu.CUjit_option.CU_JIT_ERROR_LOG_BUFFER,
           cu.CUjit_option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
state = ok(cu.cuLinkCreate(2, options, [log, len(log)]))
caller, called = ((DATA / f"link_{name}.ptx").read_bytes() + b"\\0"
                  for name in ("caller", "called"))
def add(text):
    kind = cu.CUjitInputType.CU_JIT_INPUT_PTX
    return cu.cuLinkAddData(state, kind, text, len(text), b"input", 0, [], [])
"""


@pytest.fixture
def run(tmp_path):
    def run(program: str) -> None:
        base = {**os.environ, "PYTHONPATH": FOLDERS}
        env = softgpu.environment(base, folder=tmp_path, clock="virtual", profile="tiny")
        command = [sys.executable, "-c", PREAMBLE + program]
        child = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert child.returncode == 0, child.stderr

    return run


@pytest.mark.parametrize("order", ["caller, called", "called, caller"])
def test_functions_pointers_and_variables_cross_inputs(run, order):
    run(f"""
for text in ({order}):
    ok(add(text))
image, size = ok(cu.cuLinkComplete(state))
device.modules["m"] = ok(cu.cuModuleLoadData(ctypes.string_at(image, size)))
x, seen = OnDevice("I", range(64)), OnDevice("I", [0] * 4)
device.run("m.apply", 1, 64, x)
device.run("m.tell", 1, 4, seen)
assert x.read() == [(3 * i + 1000) + 5 + (3 * i + 1000) for i in range(64)]
assert seen.read() == [26, 36, 46, 56]
""")


def test_what_is_defined_nowhere_is_named(run):
    run("""
ok(add(caller))
assert refused(cu.cuLinkComplete(state)) == "INVALID_PTX"
assert b"nowhere defined" in log
""")


def test_what_is_defined_twice_is_named(run):
    run("""
ok(add(called))
ok(add(called.replace(b"tell", b"other")))
assert refused(cu.cuLinkComplete(state)) == "INVALID_PTX"
assert b"is defined by two" in log
""")
