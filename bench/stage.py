"""A temporary device and daemon for a measurement, and the programs compiled for it.

Everything that a measurement starts is on a leash (leash.cpp): it ends with the measurement, even
if that is killed.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import ninja_build
from tandem import softgpu

HERE = Path(__file__).parent
ROOT = HERE.parent
CORE = ROOT / "csrc/core"
SHIM = ROOT / "client/tandem/libtandem.so"
READY_S = 10.0
STOP_S = 5.0
ROUND_S = 20.0


class NotMeasuredError(RuntimeError):
    """A measurement could not be made; the text says why."""


class OutOfTimeError(NotMeasuredError):
    """The measurement's time is up."""


FAILURES = (NotMeasuredError, OSError, subprocess.SubprocessError)  # that a measurement may raise


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Where a measurement runs: a folder, with its own device on the real clock."""

    folder: Path
    env: dict[str, str]
    _programs: dict[str, Path] = field(default_factory=dict)

    @property
    def attach_socket(self) -> Path:
        """The socket on which a daemon on this stage listens for jobs."""
        return self.folder / "run" / "attach.sock"

    def shimmed(self, **extra: str) -> dict[str, str]:
        """The environment of a program that runs under the shim."""
        return {**self.env, "LD_PRELOAD": str(SHIM), **extra}

    def cuda_flags(self) -> list[str]:
        """The compiler flags needed for cuda.h."""
        return ["-isystem", str(ninja_build.cuda_include()), "-D__CUDA_API_VERSION_INTERNAL"]

    def compile(self, source: str, *parts: Path) -> Path:
        """Compile a C or C++ program of this folder, linked with `parts`; return its path."""
        if source not in self._programs:
            output = self.folder / Path(source).stem
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                objects = list(pool.map(self._compile_one, (HERE / source, *parts)))
            command = ["g++", *map(str, objects), "-o", str(output), "-ldl", "-pthread"]
            subprocess.run(command, check=True)
            self._programs[source] = output
        return self._programs[source]

    def _compile_one(self, source: Path) -> Path:
        output = self.folder / f"{source.stem}.o"
        command = ["g++", "-x", "c++", "-std=c++17", "-O2", "-Wall", "-Wextra"]
        command += [*self.cuda_flags(), f"-I{CORE}", "-c", str(source), "-o", str(output)]
        subprocess.run(command, check=True)
        return output

    def kernels(self) -> Path:
        """Compile the image with the empty kernels; return its path."""
        output = self.folder / "noop.so"
        if not output.exists():
            softgpu.compile_kernels(HERE / "noop.cu", output)
        return output

    def empty_driver(self) -> Path:
        """Compile the libcuda.so.1 whose calls take no time; return its folder."""
        folder = self.folder / "empty"
        output = folder / "libcuda.so.1"
        if not output.exists():
            folder.mkdir()
            command = ["g++", "-std=c++17", "-O2", "-shared", "-fPIC", *self.cuda_flags()]
            subprocess.run([*command, HERE / "empty_driver.cpp", "-o", output], check=True)
        return folder

    @contextmanager
    def running(
        self, command: Sequence[str | Path], env: Mapping[str, str], log: Path | None = None
    ) -> Iterator[subprocess.Popen[str]]:
        """Run a program on a leash, with pipes for stdin and stdout; kill it at the end."""
        # A session of its own: Ctrl-C reaches only the measurement, which then ends the others.
        # A preloaded shim is loaded into the leash first, which makes no CUDA call and then
        # executes the program.
        with (log or Path(os.devnull)).open("ab") as errors:
            child = subprocess.Popen(
                [str(self.compile("leash.cpp")), *map(str, command)],
                env=dict(env),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors if log else None,
                text=True,
                start_new_session=True,
            )
        try:
            yield child
        finally:
            child.kill()
            child.communicate()

    @contextmanager
    def device(self) -> Iterator[None]:
        """Keep a device process alive until the block ends."""
        command = [self.compile("keeper.cpp"), self.kernels()]
        with self.running(command, self.env) as child:
            expect(child, "ready")
            yield

    @contextmanager
    def daemon(
        self, *options: str, env: Mapping[str, str] | None = None
    ) -> Iterator[subprocess.Popen[str]]:
        """Run tandemd on this stage, entering at its READY=1; `env` replaces the stage's own."""
        log = self.folder / "tandemd.log"
        notify = self.folder / "notify"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready:
            ready.bind(str(notify))
            env = {**(env or self.env), "NOTIFY_SOCKET": str(notify)}
            with self.running([sys.executable, "-m", "tandemd", *options], env, log) as child:
                _await_ready(ready, child, log)
                yield child
                child.terminate()
                with suppress(subprocess.TimeoutExpired):
                    child.wait(timeout=STOP_S)
        notify.unlink()


def read_round(child: subprocess.Popen[str], rounds: dict[str, list[list[float]]]) -> None:
    """Add what a measuring program prints, lines of `name value`, as one round of each name.

    Raises:
        NotMeasuredError: the program failed.
        subprocess.TimeoutExpired: it did not end.
    """
    output, _ = child.communicate(timeout=ROUND_S)
    if child.returncode != 0:
        raise NotMeasuredError(f"the measuring program ended with {child.returncode}")
    values: dict[str, list[float]] = defaultdict(list)
    for line in output.splitlines():
        name, value = line.split()
        values[name].append(float(value))
    for name, one in values.items():
        rounds[name].append(one)


def next_line(child: subprocess.Popen[str]) -> str:
    """Read the next line the program prints; empty if it has ended."""
    assert child.stdout is not None
    return child.stdout.readline().strip()


def expect(child: subprocess.Popen[str], word: str) -> None:
    """Read the program's next line, which must be `word`."""
    if (line := next_line(child)) != word:
        raise NotMeasuredError(f"a program said {line!r}, not {word!r}")


def tell(child: subprocess.Popen[str], line: str = "") -> None:
    """Write a line to the program."""
    assert child.stdin is not None
    child.stdin.write(f"{line}\n")
    child.stdin.flush()


def _await_ready(ready: socket.socket, child: subprocess.Popen[str], log: Path) -> None:
    ready.settimeout(0.1)
    end = time.monotonic() + READY_S
    while time.monotonic() < end and child.poll() is None:
        with suppress(TimeoutError):
            if b"READY=1" in ready.recv(4096):
                return
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-12:])
    raise NotMeasuredError(f"tandemd did not become ready\n{tail}".rstrip())


@contextmanager
def stage() -> Iterator[Stage]:
    """Make a fresh stage; remove it at the end."""
    folder = Path(tempfile.mkdtemp(prefix="tandem-bench-"))
    (folder / "run").mkdir(mode=0o700)
    (folder / "gpu").mkdir()
    base = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    env = {
        **softgpu.environment(base),
        "TANDEM_RUNTIME_DIR": str(folder / "run"),
        "TANDEM_SOFTGPU_DIR": str(folder / "gpu"),
        "TANDEM_SOFTGPU_PROFILE": "h200",
        "TANDEM_SOFTGPU_CLOCK": "real",
        "TANDEM_SOFTGPU_MODE": "time",
    }
    try:
        yield Stage(folder=folder, env=env)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
