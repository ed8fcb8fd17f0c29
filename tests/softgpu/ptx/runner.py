"""Runs programs of ptx_device, each on its own software GPU, and returns what its device did."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tandem import softgpu

HERE = Path(__file__).parent
FOLDERS = os.pathsep.join([str(HERE), str(HERE.parents[1] / "conformance")])
HEADER = ".version 8.0\n.target sm_80\n.address_size 64\n"
PREAMBLE = """
import ctypes
from cuda.bindings import driver as cu
from ptx_device import POINTER, Device, OnDevice, ok, refused
device = Device()
"""


@dataclass
class Runner:
    folder: Path

    def run(self, program: str, **more: str) -> subprocess.CompletedProcess[str]:
        base = {**os.environ, "PYTHONPATH": FOLDERS, **more}
        env = softgpu.environment(
            base,
            folder=self.folder,
            clock="virtual",
            profile="tiny",
            timeline=self.folder / "timeline.jsonl",
        )
        command = [sys.executable, "-c", PREAMBLE + program]
        child = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert child.returncode == 0, child.stderr
        return child

    def kernels(self) -> list[dict]:
        rows = map(json.loads, (self.folder / "timeline.jsonl").read_text().splitlines())
        return [row for row in rows if row["kind"] == "kernel"]
