"""Programs that question the driver directly: bench/gpu/facts/*.cpp and *.cu."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import ninja_build
from bench.gpu.harness.part import Bench
from tandem.demo.process import Message, Worker, WorkerError

HERE = Path(__file__).parents[1] / "facts"
DRIVER = HERE.parents[1]  # of driver.h
SHIM = HERE.parents[2] / "shim"


def program(bench: Bench, name: str) -> Path:
    """facts/<name>.cpp, compiled once a run.

    Raises:
        WorkerError: the compiler refuses it; its words are in the text.
    """
    return _compiled(bench.folder / name, [HERE / f"{name}.cpp"], [])


def preloaded(bench: Bench, name: str) -> Path:
    """facts/<name>.cpp as a library that takes the place of dlsym, compiled once a run.

    Raises:
        WorkerError: the compiler refuses it; its words are in the text.
    """
    options = ["-shared", "-fPIC", "-fvisibility=hidden", f"-I{SHIM}"]
    sources = [HERE / f"{name}.cpp", SHIM / "dlsym.cpp"]
    return _compiled(bench.folder / f"{name}.so", sources, options)


def _compiled(output: Path, sources: Sequence[Path], options: Sequence[str]) -> Path:
    if output.exists():
        return output
    command = ["g++", "-std=c++17", "-O2", "-Wall", "-Wextra", f"-I{DRIVER}", f"-I{HERE}", *options]
    command += ["-isystem", str(ninja_build.cuda_include()), "-D__CUDA_API_VERSION_INTERNAL"]
    command += [*map(str, sources), "-o", str(output), "-ldl", "-pthread"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise WorkerError(f"{sources[0].name} does not compile:\n{done.stderr[-2000:]}")
    return output


def kernels(bench: Bench, name: str) -> Path:
    """facts/<name>.cu, compiled for the device at hand, once a run."""
    for made in (bench.folder / f"{name}.so", bench.folder / f"{name}.cubin"):
        if made.exists():
            return made
    return bench.place.compile(HERE / f"{name}.cu", bench.folder)


def ask(
    command: Sequence[str | Path],
    env: Mapping[str, str],
    *,
    deadline_s: float,
) -> Message:
    """Run a program to its end; the JSON object of its last line.

    Raises:
        WorkerError: it failed, said nothing, or was not done by the deadline.
    """
    words = [str(word) for word in command]
    name = Path(words[0]).name
    try:
        done = subprocess.run(
            words, env=dict(env), capture_output=True, text=True, timeout=deadline_s, check=False
        )
    except subprocess.TimeoutExpired as late:
        raise WorkerError(f"{name} was not done after {deadline_s:g} s") from late
    lines = done.stdout.splitlines()
    if done.returncode != 0 or not lines:
        raise WorkerError(f"{name} ended with {done.returncode}\n{done.stderr[-2000:]}".rstrip())
    answer: Message = json.loads(lines[-1])
    return answer


@contextmanager
def talking(
    role: str, command: Sequence[str | Path], env: Mapping[str, str], folder: Path
) -> Iterator[Worker]:
    """A program that speaks JSON lines with an `event` each, as tandem.demo.worker does."""
    folder.mkdir(parents=True, exist_ok=True)
    worker = Worker(role, [str(w) for w in command], env=env, log=folder / f"{role}.log")
    try:
        yield worker
    finally:
        worker.close()


def without_event(message: Message) -> Message:
    """What it says beside its name."""
    return {name: value for name, value in message.items() if name != "event"}
