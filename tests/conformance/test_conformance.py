"""Each body of bodies/ on the software GPU and with -m gpu on a real one, bare and managed."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tandem import softgpu

pytest.importorskip("cuda.bindings")

HERE = Path(__file__).parent
BODIES = [
    f"{path.stem}-{node.name}"
    for path in sorted((HERE / "bodies").glob("[!_]*.py"))
    for node in ast.parse(path.read_text()).body
    if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
]


TANDEM_RUN = (sys.executable, "-m", "tandem.cli", "run", "--require", "--")


def run_body(name: str, env: dict[str, str], prefix: Sequence[str] = ()) -> None:
    command = [*prefix, sys.executable, str(HERE / "bodies"), *name.split("-")]
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
def served(image, serve, clean_env, tmp_path_factory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("gpu")
    base = {**clean_env, "TEST_IMAGE": str(image)}
    return serve(softgpu.environment(base, folder=folder, clock="real", profile="tiny"))


@pytest.mark.slow
@pytest.mark.parametrize("name", BODIES)
def test_on_the_software_gpu_under_tandem(name, served):
    run_body(name, served, TANDEM_RUN)


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


@pytest.fixture(scope="session")
def gpu_served(gpu_image, serve, clean_env) -> dict[str, str]:
    return serve({**clean_env, "TEST_IMAGE": str(gpu_image)})


@pytest.mark.gpu
@pytest.mark.parametrize("name", BODIES)
def test_on_a_gpu_under_tandem(name, gpu_served):
    run_body(name, gpu_served, TANDEM_RUN)
