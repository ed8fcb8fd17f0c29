"""One virtual environment per toolkit, made once under build/matrix/."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tandem import softgpu

HERE = Path(__file__).parent
BUILD = HERE.parents[1] / "build" / "matrix"
TOOLKITS = ("12.9", "13")
# pip prints both if there is no network: one for the attempt that failed, whatever broke the
# connection, and one because it found no package.
NO_NETWORK = ("connection broken by", "(from versions: none)")


@dataclass(frozen=True)
class Clients:
    """The virtual environment of one toolkit."""

    toolkit: str
    folder: Path

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    def tool(self, name: str) -> str:
        return str(self.folder / "bin" / name)


@pytest.fixture(scope="session", params=TOOLKITS)
def clients(request) -> Clients:
    found = Clients(request.param, BUILD / request.param)
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / f"{request.param}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # there may be two test runs in one checkout
        _make(found, request.config.pluginmanager.getplugin("terminalreporter"))
    return found


def _make(clients: Clients, terminal) -> None:
    requirements = HERE / f"requirements-{clients.toolkit}.txt"
    stamp = clients.folder / "stamp"
    wanted = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    terminal.write_line(f"\ninstalling the clients of CUDA {clients.toolkit} (300 MB, once)")
    shutil.rmtree(clients.folder, ignore_errors=True)
    make = [sys.executable, "-m", "venv", "--without-pip", str(clients.folder)]
    subprocess.run(make, check=True)
    pip = [sys.executable, "-m", "pip", "--python", clients.python, "install", "-q", "--no-deps"]
    quick = ["--no-compile", "--disable-pip-version-check", "--retries", "2"]
    done = subprocess.run(
        [*pip, *quick, "-r", str(requirements)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        _explain(clients, done.stderr)
    stamp.write_text(wanted)


def _explain(clients: Clients, stderr: str) -> None:
    shutil.rmtree(clients.folder, ignore_errors=True)
    if all(sign in stderr for sign in NO_NETWORK) and not os.environ.get("CI"):
        pytest.skip(f"no network to install the clients of CUDA {clients.toolkit} from")
    pytest.fail(f"the clients of CUDA {clients.toolkit} cannot be installed:\n{stderr}")


@pytest.fixture(scope="session")
def bodies(tmp_path_factory) -> Path:
    """Bodies that stand in for machine code, which cannot be executed here."""
    path = tmp_path_factory.mktemp("bodies") / "bodies.so"
    softgpu.compile_kernels(HERE / "bodies.cu", path)
    return path


@pytest.fixture
def gpu(tmp_path) -> dict[str, str]:
    """An environment in which programs have their own software GPU, on the virtual clock."""
    return softgpu.environment(folder=tmp_path, clock="virtual", profile="tiny")
