"""Builds what the preload tests need: the recording driver and small programs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from shim_support import GENERATED, HERE, ROOT, Preload, compile_source

import ninja_build  # found through shim_support
from tandem import softgpu


@pytest.fixture(scope="session")
def signatures() -> dict[str, list[str]]:
    """Return every intercepted symbol with its parameter types."""
    ninja_build.build(["generated"])
    return json.loads((GENERATED / "shim_signatures.json").read_text())


@pytest.fixture(scope="session")
def shim_library() -> Path:
    """The release build of the shim."""
    return ROOT / ninja_build.build(["shim"])["shim"].relative_to(ROOT)


@pytest.fixture(scope="session")
def fake_driver(made_once: Callable[..., Path], signatures: dict[str, list[str]]) -> Path:
    """The recording libcuda.so.1."""
    return made_once("driver/libcuda.so.1", lambda library: _compile_driver(library, signatures))


def _compile_driver(library: Path, signatures: dict[str, list[str]]) -> None:
    source = HERE / "fake_cuda.cpp"
    own = set(re.findall(r"^FAKE\((\w+)\)", source.read_text(), re.M))
    rest = [
        f'FAKE({name})({", ".join(kinds)}) {{ count("{name}"); '
        f'return refuses("{name}") ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS; }}'
        for name, kinds in signatures.items()
        if name not in own
    ]
    (library.parent / "fake_rest.inc").write_text("\n".join(rest) + "\n")
    compile_source(
        source,
        library,
        "-shared",
        "-fPIC",
        "-Wl,-Bsymbolic",
        "-Wl,-soname,libcuda.so.1",
        "-D__CUDA_API_VERSION_INTERNAL",
        "-isystem",
        str(ninja_build.cuda_include()),
        f"-I{GENERATED}",
        f"-I{library.parent}",
    )


@pytest.fixture
def cuda_include() -> Path:
    """The folder of <cuda.h>."""
    return ninja_build.cuda_include()


@pytest.fixture
def preload(shim_library: Path, fake_driver: Path, tmp_path: Path) -> Preload:
    """The shim over the recording driver, with its own runtime directory."""
    return Preload(shim=shim_library, driver=fake_driver, folder=tmp_path)


@pytest.fixture
def software_job(
    image: Path, shim_library: Path, tmp_path: Path
) -> Callable[..., subprocess.Popen[str]]:
    """Start a Python program under the shim, with its own software GPU on the real clock."""
    device = tmp_path / "gpu"
    device.mkdir()
    env = softgpu.environment(folder=device, clock="real", profile="tiny") | {
        "LD_PRELOAD": str(ROOT / shim_library),
        "TANDEM_RUNTIME_DIR": str(tmp_path),
        "TEST_IMAGE": str(image),
        "PYTHONPATH": os.pathsep.join(str(ROOT / "tests" / p) for p in ("conformance", "shim")),
    }

    def start(text: str, *words: str, **variables: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", text, *words],
            env=env | variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    return start


@pytest.fixture
def program(tmp_path: Path) -> Callable[..., Path]:
    """Compile a piece of C++ and return the program or library."""

    def make(text: str, *flags: str, name: str = "program") -> Path:
        source = tmp_path / f"{name}.cpp"
        source.write_text(text)
        output = tmp_path / name
        compile_source(source, output, *flags)
        return output

    return make
