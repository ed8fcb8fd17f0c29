"""Kernels of numba: interpreted if the driver links them, bodies if nvJitLink does."""

from __future__ import annotations

import re

import pytest
from test_clients import run

from tandem import softgpu

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

# numba passes an array as two objects of its own, sizes, the data, then shape and strides.
BODY = """
void scale(void*, void*, long, long, float* x, long n, long, float factor) __asm__("{name}");
__global__ void scale(void*, void*, long, long, float* x, long n, long, float factor) {{
  const long i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= factor;
}}
TANDEM_KERNEL(scale, blockDim.x, 8.0 * blockDim.x)
"""


@pytest.mark.parametrize("program", ["numba_kernels", "numba_launch", "numba_scale"])
@pytest.mark.parametrize("clients", ["13"], indirect=True)
def test_without_nvjitlink_kernels_are_interpreted(program, clients, gpu):
    done = run(clients, program, gpu)

    printed = [f"from thread {i} 2.500000" for i in range(2)]
    assert done.stdout.splitlines() == (printed if program == "numba_launch" else [])


@pytest.mark.parametrize("clients", ["12.9"], indirect=True)
def test_a_body_stands_in_for_the_machine_code_of_nvjitlink(clients, gpu, tmp_path):
    refused = run(clients, "numba_scale", gpu, code=1)
    (name,) = re.findall("no body for kernel '([^']+)': machine code", refused.stderr)
    source = tmp_path / "scale.cu"
    source.write_text(BODY.format(name=name))
    softgpu.compile_kernels(source, tmp_path / "scale.so")

    run(clients, "numba_scale", gpu | {"TANDEM_SOFTGPU_KERNELS": str(tmp_path / "scale.so")})
