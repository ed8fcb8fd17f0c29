"""Fetches the wheels that a GPU machine without a network lacks, for its Python 3.12, into .whl/.

The versions are those of this environment, so that what was tested here runs there; torch and its
dependencies are the machine's own.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[3] / ".whl"
# Stubs refuse a protobuf older than their generator's, and the machine has its own protobuf: this
# old release works with every protobuf from 5.26 on.
PINNED = {"grpcio-health-checking": "1.63.2"}
PACKAGES = (
    "annotated-types",
    "grpcio-health-checking",
    "hypothesis",
    "msgspec",
    "prometheus-client",
    "pydantic",
    "pydantic_core",
    "pytest-timeout",
    "setuptools",
    "sortedcontainers",
    "structlog",
    "typing-inspection",
    "typing_extensions",  # pydantic needs a newer version than other packages do
)
PLATFORMS = (
    *(f"manylinux_2_{n}_x86_64" for n in (17, 24, 27, 28, 31, 34)),
    "manylinux2014_x86_64",
    "manylinux1_x86_64",
)


def main() -> int:
    """Replace the folder's content; return pip's exit code."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    wanted = [f"{name}=={PINNED.get(name) or version(name)}" for name in PACKAGES]
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
    command += ["--python-version", "3.12", "--implementation", "cp", "-d", str(FOLDER)]
    for platform in PLATFORMS:
        command += ["--platform", platform]
    code = subprocess.run([*command, *wanted], check=False).returncode
    for wheel in sorted(FOLDER.glob("*.whl")):
        print(wheel.name)
    return code


if __name__ == "__main__":
    sys.exit(main())
