"""Unmodified clients on the software GPU, with the libraries of two CUDA toolkits."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tandem import softgpu

# The first test of each toolkit installs its clients.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PROGRAMS = Path(__file__).parent / "programs"
TANDEM_RUN = (sys.executable, "-m", "tandem.cli", "run", "--require", "--")


def run(
    clients, program: str, env: Mapping[str, str], *, prefix: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    command = [*prefix, clients.python, "-W", "ignore", str(PROGRAMS / f"{program}.py")]
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize(
    "program",
    [
        "bindings_memory",
        "core_compile",
        "core_device",
        "core_memory",
        "core_pools",
        "numba_compile",
        "numba_memory",
        "nvml",
    ],
)
def test_a_client_without_kernels(program, clients, gpu):
    run(clients, program, gpu)


@pytest.mark.parametrize("code", ["ptx", "cubin"])
def test_cuda_core_launches_bodies_that_stand_in_for_compiled_code(code, clients, gpu, bodies):
    run(clients, "core_kernel", gpu | {"TEST_CODE": code, "TANDEM_SOFTGPU_KERNELS": str(bodies)})


def test_cuda_bindings_launches_bodies_that_stand_in_for_compiled_code(clients, gpu, bodies):
    run(clients, "bindings_kernel", gpu | {"TANDEM_SOFTGPU_KERNELS": str(bodies)})


@pytest.mark.parametrize("program", ["core_kernel", "numba_memory"])
def test_a_client_under_tandem(program, clients, serve, clean_env, tmp_path, bodies):
    env = softgpu.environment(clean_env, folder=tmp_path, clock="real", profile="tiny")
    env |= {"TEST_CODE": "ptx", "TANDEM_SOFTGPU_KERNELS": str(bodies)}

    run(clients, program, serve(env), prefix=TANDEM_RUN)
