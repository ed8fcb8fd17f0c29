"""Each body of bodies.py on the software GPU, on both clocks, and with -m gpu on a real one."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tandem import softgpu

pytest.importorskip("cuda.bindings")

HERE = Path(__file__).parent
BODIES = [
    node.name
    for node in ast.parse((HERE / "bodies.py").read_text()).body
    if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
]


def run_body(name: str, env: dict[str, str]) -> None:
    command = [sys.executable, str(HERE / "bodies.py"), name]
    child = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert child.returncode == 0, child.stderr


@pytest.fixture(scope="session")
def image(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("kernels") / "kernels.so"
    softgpu.compile_kernels(HERE / "kernels.cu", path)
    return path


@pytest.mark.parametrize("clock", ["virtual", "real"])
@pytest.mark.parametrize("name", BODIES)
def test_on_the_software_gpu(name, clock, image, tmp_path):
    base = {**os.environ, "TEST_IMAGE": str(image)}
    run_body(name, softgpu.environment(base, folder=tmp_path, clock=clock, profile="tiny"))


@pytest.fixture(scope="session")
def gpu_image(tmp_path_factory) -> Path:
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not Path(nvcc).is_file():
        pytest.skip("compiling for a GPU needs nvcc")
    path = tmp_path_factory.mktemp("kernels") / "kernels.cubin"
    command = [nvcc, "-cubin", "-arch=native", "-o", str(path), str(HERE / "kernels.cu")]
    subprocess.run(command, check=True)
    return path


@pytest.mark.gpu
@pytest.mark.parametrize("name", BODIES)
def test_on_a_gpu(name, gpu_image):
    run_body(name, {**os.environ, "TEST_IMAGE": str(gpu_image)})
