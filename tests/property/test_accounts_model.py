"""Accounting of device memory against a model, in a process under the shim on the software GPU."""

import subprocess
import sys
from pathlib import Path

import pytest

from tandem import _paths, softgpu

pytest.importorskip("cuda.bindings")
pytestmark = pytest.mark.slow

FOUND = 3  # the exit code for a planted leak that was found


def run_model(folder, *arguments):
    env = softgpu.environment(folder=folder, clock="virtual", profile="tiny")
    env |= {"LD_PRELOAD": str(_paths.SHIM), "TANDEM_RUNTIME_DIR": str(folder)}
    program = Path(__file__).with_name("accounts_model.py")
    return subprocess.run(
        [sys.executable, str(program), str(folder), *arguments],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_the_shim_counts_is_what_the_device_holds(tmp_path):
    child = run_model(tmp_path)

    assert child.returncode == 0, child.stdout + child.stderr


@pytest.mark.parametrize("kind", ["linear", "array", "pool", "physical", "mapping", "graph"])
def test_a_call_that_is_not_counted_is_found(tmp_path, kind):
    child = run_model(tmp_path, kind)

    assert child.returncode == FOUND, child.stdout + child.stderr
