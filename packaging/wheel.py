"""Build wheels that install on any Linux whose glibc is not older than GLIBC: `make wheel`.

    python packaging/wheel.py [--output dist] [PYTHON...]

A wheel is for one minor version of Python: builds one for each PYTHON, or, if none is named, for
the one that runs this. Each Python needs its headers, which Debian has in python3-dev.

The clang in PyPI's ziglang compiles everything but the shim. It links for any version of glibc and
links its own C++ library statically (csrc/ninja_build.py), so neither an older system nor a
container is needed. Then auditwheel checks the wheel, and this script checks it file by file.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

import native_needs

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "csrc"))

import ninja_build

ROOT = Path(__file__).resolve().parent.parent
GLIBC = (2, 28)
SHIM_GLIBC = (2, 17)  # older, since the shim must load in any container
# Pinned, since another compiler makes another wheel.
TOOLS = ("auditwheel==6.8.2", "ziglang==0.17.1")
WORK = ROOT / "build/wheel"
TAG = f"manylinux_{GLIBC[0]}_{GLIBC[1]}_{platform.machine()}"


def main() -> int:
    """Build the wheels and print their paths."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=ROOT / "dist", metavar="FOLDER")
    parser.add_argument("pythons", nargs="*", default=[sys.executable], metavar="PYTHON")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    if platform.machine() not in ("x86_64", "aarch64"):
        sys.exit(f"error: Tandem is for x86-64 and aarch64, and this is {platform.machine()}")
    try:
        for python in arguments.pythons:
            _run("sh", str(ROOT / "packaging/check_prerequisites.sh"), python)
        tools = environment(WORK / "tools", sys.executable, TOOLS)
        for python in arguments.pythons:
            print(shutil.copy2(checked(tools, build(python, compiler(tools))), arguments.output))
    except subprocess.CalledProcessError as failure:
        return failure.returncode  # the command has printed why
    return 0


def environment(folder: Path, python: str, needs: tuple[str, ...]) -> Path:
    """Return the Python of a virtual environment with `needs`, which is kept for the next time."""
    if not (folder / "bin/python").exists():
        _run(python, "-m", "venv", str(folder))
    made = folder / "bin/python"
    _run(str(made), "-m", "pip", "-q", "--disable-pip-version-check", "install", *needs)
    return made


def compiler(tools: Path) -> str:
    """Return the command of the compiler that targets GLIBC."""
    target = f"{platform.machine()}-linux-gnu.{native_needs.text(GLIBC)}"
    return f"{tools} -m ziglang c++ -target {target}"


def build(python: str, cxx: str) -> Path:
    """Build a wheel of this checkout for the given Python."""
    needs = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    where = WORK / _minor_version(python)
    own = environment(where / "environment", python, tuple(needs))
    for left in [*ROOT.glob("build/lib*"), *ROOT.glob("build/bdist*"), where / "out"]:
        shutil.rmtree(left, ignore_errors=True)  # may hold files no longer in the checkout
    variables = {
        ninja_build.PORTABLE_CXX: cxx,
        # The same path for all Pythons; otherwise each would compile everything anew.
        "TANDEM_CUDA_INCLUDE": str(ninja_build.cuda_include()),
    }
    _run(
        *(str(own), "-m", "pip", "-q", "--disable-pip-version-check", "wheel", "--no-deps"),
        *("--no-build-isolation", f"--config-settings=--build-option=--plat-name={TAG}"),
        *("-w", str(where / "out"), str(ROOT)),
        **variables,
    )
    (wheel,) = (where / "out").glob("gpu_tandem-*.whl")
    return wheel


def checked(tools: Path, wheel: Path) -> Path:
    """Return the wheel, or exit with an error if it does not keep what its name promises."""
    if wrong := [*complaints(wheel), *auditwheels_complaints(tools, wheel)]:
        sys.exit("\n".join(f"error: {wheel.name}: {each}" for each in wrong))
    return wheel


def complaints(wheel: Path) -> list[str]:
    """List what the wheel's compiled files need that not every machine it is for has."""
    found = []
    with tempfile.TemporaryDirectory(prefix="tandem-wheel-") as folder:
        zipfile.ZipFile(wheel).extractall(folder)
        for file in native_needs.find(Path(folder)):
            glibc = SHIM_GLIBC if file.name == "libtandem.so" else GLIBC
            place = file.relative_to(folder)
            found += [f"{place} {each}" for each in native_needs.complaints(file, glibc)]
    return found


def auditwheels_complaints(tools: Path, wheel: Path) -> list[str]:
    """Let auditwheel, which checks more than versions, verify what the tag promises."""
    words = [str(tools), "-m", "auditwheel", "show", str(wheel)]
    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    tag = re.search(r'consistent\s+with\s+the\s+following\s+platform\s+tag:\s+"(\w+)"', said)
    fits = tag and re.fullmatch(r"manylinux_(\d+)_(\d+)_\w+", tag[1])
    if fits and (int(fits[1]), int(fits[2])) <= GLIBC:
        return []
    return [f"auditwheel does not find it to be {TAG}:\n{said}"]


def _minor_version(python: str) -> str:
    program = "import sys; print('cp%d%d' % sys.version_info[:2])"
    words = [python, "-c", program]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def _run(*words: str, **variables: str) -> None:
    subprocess.run(words, check=True, env={**os.environ, **variables})


if __name__ == "__main__":
    sys.exit(main())
