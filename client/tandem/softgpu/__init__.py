"""The software GPU: a test device that implements the CUDA driver API without a GPU.

    env = softgpu.environment(clock="virtual", folder=tmp_path)
    subprocess.run([sys.executable, "program.py"], env=env)

A program started with that environment loads our `libcuda.so.1`. Its kernels are host code that g++
compiles from an ordinary `.cu` file; see `compile_kernels`.
"""

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tandem.errors import UsageError

_SECTION = b"\0.tandem_kernels\0"  # where TANDEM_KERNEL puts its arguments
_HERE = Path(__file__).parent
LIBRARIES = _HERE / "lib"  # libcuda.so.1, libnvidia-ml.so.1
DEVICE_PROGRAM = _HERE / "bin" / "tandem-softgpu"
INCLUDE = _HERE / "include"  # tandem_kernel.h

PROFILES = ("h200", "a100", "rtx4090", "tiny", "mini")  # devices it can model; csrc has the figures

# Keyword of `environment` -> variable that the device process reads.
OPTIONS = {
    "folder": "TANDEM_SOFTGPU_DIR",
    "clock": "TANDEM_SOFTGPU_CLOCK",
    "mode": "TANDEM_SOFTGPU_MODE",
    "profile": "TANDEM_SOFTGPU_PROFILE",
    "timeline": "TANDEM_SOFTGPU_TIMELINE",
    "faults": "TANDEM_SOFTGPU_FAULTS",
    "devices": "TANDEM_SOFTGPU_DEVICES",
    "mig": "TANDEM_SOFTGPU_MIG",
    "start_clients": "TANDEM_SOFTGPU_START_CLIENTS",
    "kernels": "TANDEM_SOFTGPU_KERNELS",
}

__all__ = [
    "DEVICE_PROGRAM",
    "INCLUDE",
    "LIBRARIES",
    "OPTIONS",
    "PROFILES",
    "compile_kernels",
    "environment",
    "runtime_folder",
]


def environment(
    base: Mapping[str, str] | None = None, **options: str | int | Path | None
) -> dict[str, str]:
    """The environment for a program that is to run on the software GPU.

    Args:
        base: the variables to start from; by default the present environment.
        options: device settings by the names in OPTIONS; None leaves one unchanged. They count only
            for the program that starts the device process; later programs join the device in their
            folder as it is.

    Raises:
        TypeError: an option that is not in OPTIONS.
    """
    env = dict(os.environ if base is None else base)
    paths = [p for p in env.get("LD_LIBRARY_PATH", "").split(os.pathsep) if p]
    own = str(LIBRARIES)
    env["LD_LIBRARY_PATH"] = os.pathsep.join([own, *(p for p in paths if p != own)])
    programs = str(DEVICE_PROGRAM.parent)  # nvidia-cuda-mps-control
    paths = [p for p in env.get("PATH", os.defpath).split(os.pathsep) if p]
    env["PATH"] = os.pathsep.join([programs, *(p for p in paths if p != programs)])
    for name, value in options.items():
        if name not in OPTIONS:
            msg = f"unknown option {name!r}; known are {', '.join(OPTIONS)}"
            raise TypeError(msg)
        if value is not None:
            env[OPTIONS[name]] = str(value)
    return env


def runtime_folder(env: Mapping[str, str] | None = None) -> Path:
    """The folder where a program with this environment looks for its device process."""
    env = os.environ if env is None else env
    if own := env.get("TANDEM_SOFTGPU_DIR"):
        return Path(own)
    for name in ("TANDEM_RUNTIME_DIR", "RUNTIME_DIRECTORY"):
        if folder := env.get(name):
            return Path(folder) / "softgpu"
    if xdg := env.get("XDG_RUNTIME_DIR"):
        return Path(xdg) / "tandem" / "softgpu"
    if os.access("/run/tandem", os.W_OK):
        return Path("/run/tandem/softgpu")
    return Path(f"/tmp/tandem-{os.getuid()}/softgpu")


def compile_kernels(source: str | Path, output: str | Path | None = None) -> bytes:
    """Compile a `.cu` file into an image for `cuModuleLoadData`, and return its bytes.

    Every kernel in it needs a TANDEM_KERNEL line; tandem_kernel.h describes it.

    Args:
        source: the `.cu` file.
        output: where to save the image as well, as a shared object.

    Raises:
        FileNotFoundError: g++, or what CXX names, is not on this machine.
        UsageError: the compiler failed, with its messages on stderr; or no kernel has its line.
    """
    compiler = shlex.split(os.environ.get("CXX", "")) or ["g++"]  # as in make: "ccache g++"
    if shutil.which(compiler[0]) is None:
        msg = f"{compiler[0]!r} is not installed; the software GPU's kernels are compiled by it"
        raise FileNotFoundError(msg)
    with tempfile.TemporaryDirectory(prefix="tandem-kernels-") as folder:
        made = Path(output) if output is not None else Path(folder) / "kernels.so"
        flags = ["-x", "c++", "-std=c++17", "-O2", "-fno-semantic-interposition"]
        flags += ["-shared", "-fPIC"]
        includes = ["-I", str(INCLUDE), "-include", str(INCLUDE / "tandem_kernel.h")]
        command = [*compiler, *flags, *includes, str(source), "-o", str(made)]
        # Neither the shim of the job that compiles, nor the software driver.
        env = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "LD_LIBRARY_PATH")}
        done = subprocess.run(command, check=False, env=env)
        if done.returncode:
            raise UsageError(
                f"'{source}' does not compile: {compiler[0]} ended with exit code "
                f"{done.returncode}; what it says is on stderr"
            )
        image = made.read_bytes()
    if _SECTION not in image:
        raise UsageError(
            f"'{source}' has no kernel that can be loaded: write a line "
            "TANDEM_KERNEL(NAME, FLOPS, BYTES) after each, with what a block of it costs"
        )
    return image
