"""Real PTX, made by NVRTC and nvcc, computes what Python computes."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tandem import softgpu

pytest.importorskip("cuda.bindings")

HERE = Path(__file__).parent
NAMES = [
    node.name
    for node in ast.parse((HERE / "programs.py").read_text()).body
    if isinstance(node, ast.FunctionDef) and [a.arg for a in node.args.args] == ["device"]
]


# The driver of CUDA 13.0 does not know the PTX version that newer numba emits.
NEWER = {name for name in NAMES if name.endswith("by_numba")}


def run_all(env: dict[str, str]) -> dict[str, str | None]:
    command = [sys.executable, str(HERE / "programs.py")]
    child = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr
    return json.loads(child.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> dict[str, str | None]:
    folder = tmp_path_factory.mktemp("ptx")
    return run_all(softgpu.environment(os.environ, folder=folder, clock="virtual", profile="tiny"))


@pytest.mark.parametrize("name", NAMES)
def test_program(name, results):
    assert results[name] is None, results[name]


@pytest.mark.gpu
def test_the_same_programs_on_a_gpu():
    found = run_all(dict(os.environ))

    assert not {name: why for name, why in found.items() if why and name not in NEWER}
