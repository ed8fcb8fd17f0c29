"""Programs that test the driver directly: bench/gpu/facts/*.cpp and *.cu."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import ninja_build
from bench.gpu.harness.part import GPU, Bench
from tandem.demo.image import whole
from tandem.demo.process import WorkerError

HERE = Path(__file__).parents[1] / "facts"
DRIVER = HERE.parents[1]  # of driver.h
SHIM = HERE.parents[2] / "shim"


def program(bench: Bench, name: str) -> Path:
    """Compile facts/<name>.cpp, once per run; return the program.

    Raises:
        WorkerError: it does not compile; the text has the compiler's messages.
    """
    return _compiled(bench, name, [HERE / f"{name}.cpp"], [])


def preloaded(bench: Bench, name: str) -> Path:
    """Compile facts/<name>.cpp, once per run, as a library that replaces dlsym.

    Raises:
        WorkerError: it does not compile; the text has the compiler's messages.
    """
    options = ["-shared", "-fPIC", "-fvisibility=hidden", f"-I{SHIM}"]
    sources = [HERE / f"{name}.cpp", SHIM / "dlsym.cpp", SHIM / "old_glibc.cpp"]
    return _compiled(bench, f"{name}.so", sources, options)


def _compiled(bench: Bench, name: str, sources: Sequence[Path], options: Sequence[str]) -> Path:
    output = bench.made / name
    if output.exists():
        return output
    optimised = "-O2" if bench.where == GPU else "-O0"  # in a dry run, -O2 costs more than it saves
    compile_it = ["g++", "-std=c++17", optimised, "-Wall", "-Wextra", *options]
    compile_it += [f"-I{DRIVER}", f"-I{HERE}"]
    compile_it += ["-isystem", str(ninja_build.cuda_include()), "-D__CUDA_API_VERSION_INTERNAL"]
    with whole(output) as half:
        compile_it += [*map(str, sources), "-o", str(half), "-ldl", "-pthread"]
        done = subprocess.run(compile_it, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise WorkerError(f"{sources[0].name} does not compile:\n{done.stderr[-2000:]}")
    return output


def kernels(bench: Bench, name: str) -> Path:
    """Compile facts/<name>.cu for the device at hand, once per run; return the image."""
    return bench.place.compile(HERE / f"{name}.cu", bench.made)


def command(bench: Bench, name: str, kernels_name: str, *words: object) -> list[str]:
    """The command of facts/<name>.cpp, which loads facts/<kernels_name>.cu; compiles both."""
    image = kernels(bench, kernels_name)
    return [str(program(bench, name)), str(image), *map(str, words)]
