"""Generate client/tandem/_wire from proto/ with pinned generators.

    python packaging/generate_stubs.py

The generator is old on purpose: code made by protobuf 5.26 imports under every runtime from 4.25 to
7, while newer code refuses older runtimes. It gets a virtual environment of its own in
build/stubs-venv, because it must never decide which protobuf a user's environment holds. There are
no wheels of it for Python 3.13; set STUBS_PYTHON to an older Python there.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUTPUT = ROOT / "client" / "tandem" / "_wire"
VENV = ROOT / "build" / "stubs-venv"
GENERATORS = (
    "grpcio-tools==1.63.2",
    "mypy-protobuf==3.6.0",
    "protobuf==5.29.6",
    "setuptools==80.9.0",  # grpc_tools.protoc imports pkg_resources, which later ones dropped
)
PROTOS = ("proto/tandem/v1/tandem.proto", "proto/kubelet/v1beta1/deviceplugin.proto")
PACKAGE_DOCSTRING = '"""Generated from proto/ by `make stubs`; do not edit."""\n'


def generate(output: Path) -> None:
    """Generate the messages, the services and their types into `output`."""
    python = generator_python()
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run(protoc_command(python, Path(scratch)), check=True, cwd=ROOT, env=_environ())
        made = Path(scratch) / "tandem" / "_wire"
        output.mkdir(parents=True, exist_ok=True)
        for file in sorted(made.iterdir()):
            (output / file.name).write_text(file.read_text())
    (output / "__init__.py").write_text(PACKAGE_DOCSTRING)


def protoc_command(python: Path, output: Path) -> list[str]:
    """The call of protoc; mapping the folders makes `tandem._wire` the package of the imports."""
    plugins = [
        f"--plugin={p}={python.parent / p}" for p in ("protoc-gen-mypy", "protoc-gen-mypy_grpc")
    ]
    kinds = ("python", "grpc_python", "mypy", "mypy_grpc")
    return [
        *(str(python), "-m", "grpc_tools.protoc"),
        *(f"-Itandem/_wire={Path(proto).parent}" for proto in PROTOS),
        *plugins,
        *(f"--{kind}_out={'quiet:' if 'mypy' in kind else ''}{output}" for kind in kinds),
        *(f"tandem/_wire/{Path(proto).name}" for proto in PROTOS),
    ]


def generator_python() -> Path:
    """The interpreter that has exactly GENERATORS; makes the environment on first use."""
    python, stamp = VENV / "bin" / "python", VENV / "generators.txt"
    wanted = "\n".join(GENERATORS)
    if not stamp.is_file() or stamp.read_text() != wanted:
        base = os.environ.get("STUBS_PYTHON", sys.executable)
        print(f"installing the stub generators into {VENV.relative_to(ROOT)}", file=sys.stderr)
        subprocess.run([base, "-m", "venv", "--clear", VENV], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *GENERATORS], check=True)
        stamp.write_text(wanted)
    return python


def _environ() -> dict[str, str]:
    # PYTHONPATH may lead to another protobuf than the pinned one.
    return {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}


if __name__ == "__main__":
    generate(OUTPUT)
