"""A scratch device and daemon for a measurement, and the programs compiled for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import ninja_build
from tandem import softgpu
from tandem.demo.process import Daemon

HERE = Path(__file__).parent
ROOT = HERE.parent
CORE = ROOT / "csrc/core"
SHIM = ROOT / "client/tandem/libtandem.so"


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Where a measurement runs: a folder with a device of its own on the real clock."""

    folder: Path
    env: dict[str, str]

    def shimmed(self, **extra: str) -> dict[str, str]:
        """Environment of a program that runs under the shim."""
        return {**self.env, "LD_PRELOAD": str(SHIM), **extra}

    def compile(self, source: str) -> Path:
        """One C or C++ program of this folder."""
        output = self.folder / Path(source).stem
        include = ninja_build.cuda_include()
        command = ["g++", "-x", "c++", "-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror"]
        command += ["-isystem", str(include), "-D__CUDA_API_VERSION_INTERNAL", f"-I{CORE}"]
        subprocess.run(
            [*command, str(HERE / source), "-o", str(output), "-ldl", "-pthread"], check=True
        )
        return output

    def kernels(self) -> Path:
        """The image with the empty kernel."""
        output = self.folder / "noop.so"
        softgpu.compile_kernels(HERE / "noop.cu", output)
        return output

    @contextmanager
    def daemon(self, arguments: Sequence[str] = ()) -> Iterator[Daemon]:
        """A tandemd on this stage."""
        daemon = Daemon(
            env=self.env,
            runtime_dir=self.folder / "run",
            log=self.folder / "tandemd.log",
            arguments=arguments,
        )
        try:
            yield daemon
        finally:
            daemon.close()


@contextmanager
def stage() -> Iterator[Stage]:
    """A fresh stage, removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="tandem-bench-"))
    (folder / "run").mkdir(mode=0o700)
    (folder / "gpu").mkdir()
    base = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    env = {
        **softgpu.environment(base),
        "TANDEM_RUNTIME_DIR": str(folder / "run"),
        "TANDEM_SOFTGPU_DIR": str(folder / "gpu"),
        "TANDEM_SOFTGPU_PROFILE": "h200",
        "TANDEM_SOFTGPU_CLOCK": "real",
        "TANDEM_SOFTGPU_MODE": "time",
    }
    try:
        yield Stage(folder=folder, env=env)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
