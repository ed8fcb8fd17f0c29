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
    clients, program: str, env: Mapping[str, str], *, prefix: Sequence[str] = (), code: int = 0
) -> subprocess.CompletedProcess[str]:
    command = [*prefix, clients.python, "-W", "ignore", str(PROGRAMS / f"{program}.py")]
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == code, done.stderr
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


# Each program runs twice: with its kernels interpreted, and with bodies that stand in for them.
KERNELS = pytest.mark.parametrize("kernels", ["interpreted", "bodies"])


@pytest.fixture
def with_kernels(gpu, bodies):
    return {"interpreted": gpu, "bodies": gpu | {"TANDEM_SOFTGPU_KERNELS": str(bodies)}}


def test_cuda_core_links_two_objects(clients, gpu):
    run(clients, "core_linker", gpu)


@KERNELS
@pytest.mark.parametrize("program", ["bindings_kernel", "core_graphs"])
def test_a_client_with_kernels(program, kernels, clients, with_kernels):
    run(clients, program, with_kernels[kernels])


@KERNELS
@pytest.mark.parametrize("code", ["ptx", "cubin"])
def test_cuda_core_loads_what_it_compiled(code, kernels, clients, with_kernels):
    run(clients, "core_kernel", with_kernels[kernels] | {"TEST_CODE": code})


# Only programs that check no times, because these run on the real clock.
@pytest.mark.parametrize(
    "program",
    ["bindings_kernel", "core_graphs", "core_kernel", "core_pools", "numba_memory", "nvml"],
)
def test_a_client_under_tandem(program, clients, serve, clean_env, tmp_path):
    env = softgpu.environment(clean_env, folder=tmp_path, clock="real", profile="tiny")

    run(clients, program, serve(env | {"TEST_CODE": "ptx"}), prefix=TANDEM_RUN)
