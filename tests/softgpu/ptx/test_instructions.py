"""Every row of instruction_table.py computes what PTX specifies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from instruction_table import rows

from tandem import softgpu

pytest.importorskip("cuda.bindings")

HERE = Path(__file__).parent
OPCODES = sorted({row.name.split(".")[0] for row in rows()})


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> dict:
    folder = tmp_path_factory.mktemp("ptx")
    env = softgpu.environment(os.environ, folder=folder, clock="virtual", profile="tiny")
    command = [sys.executable, str(HERE / "instructions.py")]
    child = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr
    return json.loads(child.stdout.splitlines()[-1])


def test_the_table_is_large(report):
    assert report["rows"] > 600


@pytest.mark.parametrize("opcode", OPCODES)
def test_opcode(opcode, report):
    mine = {k: v for k, v in report["problems"].items() if k.split(".")[0] == opcode}
    assert not mine
