"""Memory pools against a model, in a process of its own that loads the software driver."""

import subprocess
import sys
from pathlib import Path

import pytest

from tandem import softgpu

pytest.importorskip("cuda.bindings")


@pytest.mark.slow
def test_pools_give_what_the_model_says(tmp_path):
    env = softgpu.environment(folder=tmp_path, clock="virtual", profile="tiny")
    program = Path(__file__).with_name("pool_model.py")
    child = subprocess.run(
        [sys.executable, str(program)], env=env, capture_output=True, text=True, check=False
    )
    assert child.returncode == 0, child.stdout + child.stderr
