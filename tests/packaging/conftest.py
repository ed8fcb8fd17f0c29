"""What is built once for all tests of packages."""

import fcntl
import shutil
import subprocess
from pathlib import Path

import pytest
from offline_pip import OFFLINE, PIP

ROOT = Path(__file__).resolve().parents[2]
# Not in a checkout, or not in the package. Compiled outputs are copied, so they are not rebuilt.
LEFT_OUT = shutil.ignore_patterns(
    ".git",
    ".venv",
    "__pycache__",
    "*.egg-info",
    ".*_cache",
    ".hypothesis",  # other workers write to it at the same time
    "asan",
    "tsan",
    "fuzz",
    "matrix",
    "stubs-venv",
    "tests",
)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    work = tmp_path_factory.mktemp("wheel")
    with (ROOT / "build/native/release/lock").open("a") as lock:  # csrc/ninja_build.py's
        fcntl.flock(lock, fcntl.LOCK_EX)  # so nothing is copied half-built
        shutil.copytree(ROOT, work / "source", ignore=LEFT_OUT, symlinks=True)
    subprocess.run(
        [*PIP, "wheel", *OFFLINE, "-w", str(work), "."],
        cwd=work / "source",
        check=True,
        timeout=600,
    )
    (found,) = work.glob("gpu_tandem-*.whl")
    return found
