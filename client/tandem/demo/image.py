"""Compiles kernels for the present device: the demo's own, or a file of the same kind.

If the folder already has the output, that is used.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tandem.demo.process import WorkerError
from tandem.errors import UsageError

SOURCE = Path(__file__).with_name("kernels.cu")


def software_image(folder: Path, source: Path = SOURCE) -> Path:
    """Compile host kernels with g++ to a shared object in `folder`, named after the source.

    Raises:
        WorkerError: the compiler is missing, or fails; the text quotes it.
    """
    from tandem import softgpu

    output = folder / f"{source.stem}.so"
    if output.exists():
        return output
    try:
        with whole(output) as half:
            softgpu.compile_kernels(source, half)
    except FileNotFoundError as failure:
        msg = "the demo's kernels need g++ (Debian: apt install g++)"
        raise WorkerError(msg) from failure
    except UsageError as failure:
        raise WorkerError(str(failure)) from failure
    return output


def gpu_image(folder: Path, source: Path = SOURCE, *, capability: str) -> Path:
    """Compile a cubin for a compute capability ("90"), by NVRTC if present, else by nvcc.

    Raises:
        WorkerError: neither is installed, or the compiler fails.
    """
    output = folder / f"{source.stem}.cubin"
    if not output.exists():
        with whole(output) as half:
            _compile(source, half, capability)
    return output


@contextmanager
def whole(output: Path) -> Iterator[Path]:
    """A path for writing `output`, which appears under its own name only when the block is done."""
    with TemporaryDirectory(dir=output.parent) as folder:
        half = Path(folder) / output.name
        yield half
        half.replace(output)


def _compile(source: Path, output: Path, capability: str) -> None:
    if (cubin := _nvrtc(source, capability)) is not None:
        output.write_bytes(cubin)
        return
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not Path(nvcc).is_file():
        msg = (
            "compiling the demo's kernels needs NVRTC or nvcc; "
            "pip install nvidia-cuda-nvrtc, or put nvcc on the PATH"
        )
        raise WorkerError(msg)
    command = [nvcc, f"-arch=sm_{capability}", "-cubin", "-o", str(output), str(source)]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    if child.returncode != 0:
        msg = f"nvcc could not compile {source.name}: {child.stderr.strip()}"
        raise WorkerError(msg)


def _nvrtc(source: Path, capability: str) -> bytes | None:
    """The cubin, or None if NVRTC's library is not installed."""
    try:
        from cuda.bindings import nvrtc

        result, program = nvrtc.nvrtcCreateProgram(
            source.read_bytes(), source.name.encode(), 0, [], []
        )
    except (ImportError, RuntimeError):  # RuntimeError: the bindings found no libnvrtc
        return None
    option = f"--gpu-architecture=sm_{capability}".encode()
    (result,) = nvrtc.nvrtcCompileProgram(program, 1, [option])
    if result != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        _, log_bytes = nvrtc.nvrtcGetProgramLogSize(program)
        log = b" " * log_bytes
        nvrtc.nvrtcGetProgramLog(program, log)
        msg = f"NVRTC could not compile {source.name}: {log.decode(errors='replace').strip()}"
        raise WorkerError(msg)
    _, image_bytes = nvrtc.nvrtcGetCUBINSize(program)
    image: bytes = b" " * image_bytes
    nvrtc.nvrtcGetCUBIN(program, image)
    return image
