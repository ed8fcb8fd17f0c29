"""Write csrc/api/ from every version of cuda.h on PyPI, and check that the shim builds with each.

    python packaging/headers.py [--keep DIR]

Downloads the runtime packages (2 MiB each) into DIR, or a temporary folder. To add a new version of
CUDA, add a line to PACKAGES; check_calls.py then names the functions that calls.def lacks.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {
    "12.4": "nvidia-cuda-runtime-cu12==12.4.*",
    "12.5": "nvidia-cuda-runtime-cu12==12.5.*",
    "12.6": "nvidia-cuda-runtime-cu12==12.6.*",
    "12.8": "nvidia-cuda-runtime-cu12==12.8.*",
    "12.9": "nvidia-cuda-runtime-cu12==12.9.*",
    "13.0": "nvidia-cuda-runtime==13.0.*",
    "13.1": "nvidia-cuda-runtime==13.1.*",
    "13.2": "nvidia-cuda-runtime==13.2.*",
    "13.3": "nvidia-cuda-runtime==13.3.*",
    "13.4": "nvidia-cuda-runtime==13.4.*",
    "13.5": "nvidia-cuda-runtime==13.5.*",
}
FLAGS = "-std=c++17 -fsyntax-only -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror"
PRELOADED = "-fno-exceptions -fno-rtti -D__CUDA_API_VERSION_INTERNAL"


def main() -> int:
    """Go through all versions; return exit code 1 if the shim does not build with one of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", type=Path, metavar="DIR", help="where the packages are kept")
    arguments = parser.parse_args()
    failed = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.keep or Path(scratch)
        for version, package in PACKAGES.items():
            include = _include(folder / version, package)
            _run(ROOT / "csrc/softgpu/generate_table.py", include, "--write-api", "csrc/api")
            if not _shim_builds(include, Path(scratch) / "generated" / version):
                failed.append(version)
            print(f"{version}: {'the shim does not build' if version in failed else 'ok'}")
    return 1 if failed else 0


def _include(folder: Path, package: str) -> Path:
    """Return the folder with a package's cuda.h; download the package on first use."""
    if not list(folder.glob("**/cuda.h")):
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder)]
        subprocess.run([*command, package], check=True)
        for wheel in folder.glob("*.whl"):
            zipfile.ZipFile(wheel).extractall(folder)
    return next(folder.glob("**/cuda.h")).parent


def _shim_builds(include: Path, generated: Path) -> bool:
    _run(ROOT / "csrc/softgpu/generate_table.py", include, "--out", str(generated))
    for script in sorted(ROOT.glob("shim/generate_*.py")):
        _run(script, include, "--out", str(generated))
    parts = [ROOT / "shim", *(p for p in (ROOT / "shim").iterdir() if p.is_dir())]
    own = [flag for folder in parts for flag in ("-iquote", str(folder))]
    folders = ["-Icsrc/core", *own, f"-I{generated}", "-isystem", str(include)]
    compiler = [
        *shlex.split(os.environ.get("CXX", "g++")),
        *FLAGS.split(),
        *PRELOADED.split(),
        *folders,
    ]
    sources = [str(path) for path in sorted(ROOT.glob("shim/**/*.cpp"))]
    return subprocess.run([*compiler, *sources], check=False, cwd=ROOT).returncode == 0


def _run(script: Path, include: Path, *arguments: str) -> None:
    command = [sys.executable, str(script), "--cuda-include", str(include), *arguments]
    subprocess.run(command, check=True, cwd=ROOT)


if __name__ == "__main__":
    sys.exit(main())
