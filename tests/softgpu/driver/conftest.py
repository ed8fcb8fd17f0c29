"""Programs for the software GPU, each in its own process and directory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import old_drivers
import pytest

from tandem import softgpu
from tandem.softgpu._query import device_status

CONFORMANCE = Path(__file__).parents[2] / "conformance"
# Without garbage collection over the imports, which takes a fifth of a short program's time.
PREAMBLE = """
import ctypes, gc, os, signal, sys, threading
gc.disable()
from cuda.bindings import driver as cu
gc.freeze()
gc.enable()
from gpu import NOT_READY, Gpu, address, ok, outside, refused, u32
libcuda = ctypes.CDLL("libcuda.so.1")
libcuda.softgpu_now_ns.restype = ctypes.c_uint64
libcuda.softgpu_wait_until_ns.argtypes = [ctypes.c_uint64]
libcuda.softgpu_wait_for_change.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int]
"""


@dataclass
class SoftwareGpu:
    """A directory with its own device process, and the programs started in it."""

    folder: Path
    image: Path
    options: dict[str, str] = field(default_factory=dict)
    version: str = ""  # CUDA version of an older driver

    def env(self, **more: str) -> dict[str, str]:
        base = {**os.environ, "TEST_IMAGE": str(self.image), "PYTHONPATH": str(CONFORMANCE), **more}
        timeline = self.folder / "timeline.jsonl"
        options = {"profile": "tiny", "clock": "virtual", **self.options}
        env = softgpu.environment(base, folder=self.folder, timeline=timeline, **options)
        return old_drivers.of_version(self.version, env) if self.version else env

    def start(self, program: str, **more: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", PREAMBLE + program]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, env=self.env(**more), stdout=pipe, stderr=pipe, stdin=pipe, text=True
        )

    def run(self, program: str, **more: str) -> str:
        child = self.start(program, **more)
        out, err = child.communicate(timeout=60)
        assert child.returncode == 0, err
        return out.strip()

    def timeline(self, kind: str = "kernel") -> list[dict]:
        text = (self.folder / "timeline.jsonl").read_text()
        return [row for row in map(json.loads, text.splitlines()) if row["kind"] == kind]

    def status(self) -> dict:
        return json.loads(device_status(self.folder))

    def wait_until(self, holds) -> None:
        """Wait, for a minute at most, until the device process's status satisfies `holds`."""
        deadline = time.monotonic() + 60
        while not holds(self.status()):
            assert time.monotonic() < deadline, self.status()
            time.sleep(0.01)


@pytest.fixture
def gpu(tmp_path, image) -> SoftwareGpu:
    return SoftwareGpu(tmp_path, image)
