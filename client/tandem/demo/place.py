"""Chooses the device for the demo: the NVIDIA GPU if there is one, else the software GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tandem.demo.image import gpu_image, software_image
from tandem.errors import StateError

SOFTWARE_NAME = "Tandem Software GPU"
PROFILE = "tiny"  # 1 GB/s: a millisecond of GPU time is little work for the CPU


@dataclass(frozen=True, kw_only=True)
class Place:
    """A device, and the environment that a process needs to compute on it."""

    name: str
    kind: str  # nvidia | software
    mode: str  # time | mps
    clock: str  # real | virtual
    image: Path
    base_env: Mapping[str, str]
    profile: str = PROFILE  # of the software GPU
    capability: str = ""  # compute capability of an NVIDIA GPU: "90"

    def compile(self, source: Path, folder: Path) -> Path:
        """Compile other kernels for this device, into `folder`.

        Raises:
            WorkerError: they cannot be compiled here; the text says why.
        """
        if self.kind == "nvidia":
            return gpu_image(folder, source, capability=self.capability)
        return software_image(folder, source)

    def env(self, folder: Path) -> dict[str, str]:
        """The environment of processes that share the device in `folder`.

        With the software GPU, each folder has a device of its own, and its timeline.
        """
        if self.kind == "nvidia":
            return dict(self.base_env)
        from tandem import softgpu

        folder.mkdir(parents=True, exist_ok=True)
        return softgpu.environment(
            self.base_env,
            folder=folder,
            profile=self.profile,
            clock=self.clock,
            mode=self.mode,
            timeline=folder / "timeline.jsonl",
        )


def find_place(*, clock: str, folder: Path, profile: str = PROFILE) -> Place:
    """Look for an NVIDIA GPU in a child process, and compile the kernels for what is found.

    The virtual clock exists only on the software GPU, so asking for it selects that.

    Raises:
        StateError: cuda.bindings is not installed.
        WorkerError: the kernels cannot be compiled here; the text says what to install.
    """
    base_env = dict(os.environ)
    base_env.pop("LD_PRELOAD", None)
    probed = probe(base_env) if clock == "real" else None
    if probed is not None and not str(probed["name"]).startswith(SOFTWARE_NAME):
        capability = str(probed["capability"])
        return Place(
            name=str(probed["name"]),
            kind="nvidia",
            mode="mps" if _mps_runs() else "time",
            clock="real",
            image=gpu_image(folder, capability=capability),
            base_env=base_env,
            capability=capability,
        )
    return Place(
        name=SOFTWARE_NAME,
        kind="software",
        mode=os.environ.get("TANDEM_SOFTGPU_MODE", "time"),
        clock=clock,
        image=software_image(folder),
        base_env=base_env,
        profile=profile,
    )


def probe(env: Mapping[str, str]) -> dict[str, object] | None:
    """The name and capability of device 0 as a child process sees it; None without a driver.

    Raises:
        StateError: cuda.bindings is not installed.
    """
    child = subprocess.run(
        [sys.executable, "-m", "tandem.demo.probe"],
        env=dict(env),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if "No module named 'cuda" in child.stderr:
        raise StateError(
            "the demo's programs need cuda.bindings, which is not installed; install Tandem with "
            "its [cuda] extra: pip install 'gpu-tandem[cuda]'"
        )
    if child.returncode != 0:
        return None
    answer = json.loads(child.stdout)
    return answer if isinstance(answer, dict) else None


def _mps_runs() -> bool:
    pipes = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"))
    return (pipes / "control").exists()
