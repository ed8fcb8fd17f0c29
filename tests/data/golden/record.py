"""Record what a build says and writes: `python tests/data/golden/record.py BUILD [OUTPUT]`.

BUILD is a checkout of any commit in which `make build` was run, such as `.`. Its daemon and a job
of its `tandem run` meet on the software GPU of this checkout, through a socket that listens in
between. OUTPUT is a folder. README.md says what to do with a new record.
"""

from __future__ import annotations

import argparse
import contextlib
import mmap
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE

HERE = Path(__file__).absolute().parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(HERE.parent))

from golden import Golden, kind_of
from tandem import softgpu

TANDEM = (sys.executable, "-m", "tandem.cli")
WISHES = ("-p", "batch", "-m", "64MiB", "-J", "golden", "-G", "past", "--slo", "p99=50ms")
SETTLES_S = 2.0  # what is told late: by the helper thread, or by the daemon of a pause
LAYOUTS_AT, LAYOUTS = 16, struct.Struct("=II")  # of HELLO


class Between:
    """Takes what a job says to a daemon and brings it there, and the other way round."""

    def __init__(self, front: Path, back: Path) -> None:
        self.golden = Golden()
        self.pages: list[int] = []  # command, state, presence: as they came with WELCOME
        self._back = back
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(front))
        self._listener.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            job, _ = self._listener.accept()
            daemon = self.connect()
            for who, source, target in (("job", job, daemon), ("daemon", daemon, job)):
                threading.Thread(
                    target=self._carry, args=(who, source, target), daemon=True
                ).start()

    def connect(self) -> socket.socket:
        """To the daemon."""
        daemon = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        daemon.connect(str(self._back))
        return daemon

    def _carry(self, who: str, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                packet, descriptors, _, _ = socket.recv_fds(source, 4096, 8)
                if not packet:
                    target.shutdown(socket.SHUT_RDWR)
                    return
                self.golden.said.append((who, packet))
                if kind_of(packet) == "WELCOME":
                    self.pages = descriptors
                socket.send_fds(target, [packet], descriptors)

    def keep_pages(self, when: str) -> None:
        """What is in them now; where it was kept before, without slots and rings."""
        for name, fd in zip(("command", "state", "presence"), self.pages, strict=True):
            with mmap.mmap(fd, os.fstat(fd).st_size, prot=mmap.PROT_READ) as page:
                again = any(kept.startswith("state") for kept in self.golden.pages)
                self.golden.pages[f"{name}-{when}"] = page[: 4096 if again else len(page)]


class Build:
    """One build's daemon and commands, on the software GPU of this checkout."""

    def __init__(self, checkout: Path, folder: Path) -> None:
        self.back = folder / "back"
        self.back.mkdir()
        base = {k: v for k, v in os.environ.items() if not k.startswith("TANDEM_")}
        base["PYTHONPATH"] = os.pathsep.join(str(checkout / part) for part in ("client", "daemon"))
        self._env = softgpu.environment(
            base, folder=folder / "gpu", clock="real", profile="tiny", devices=2
        )

    @contextlib.contextmanager
    def daemon(self) -> Iterator[None]:
        command = [sys.executable, "-m", "tandemd", "--runtime-dir", self.back]
        with subprocess.Popen(command, env=self._env) as process:
            while not (self.back / "attach.sock").exists():
                time.sleep(0.1)
            yield
            process.terminate()

    def run(self, *words: str) -> str:
        """A command of the daemon's, to its end; what it says."""
        env = self._env | {"TANDEM_RUNTIME_DIR": str(self.back)}
        done = subprocess.run([*TANDEM, *words], env=env, check=True, stdout=PIPE, text=True)
        return done.stdout

    def swaps(self) -> list[str]:
        """Asks for memory that moves, where the build has any."""
        return ["--swappable"] if "--swappable" in self.run("run", "--help") else []

    @contextlib.contextmanager
    def job(self, runtime: Path, *words: str, does: str) -> Iterator[None]:
        """A job that has done it, and stays."""
        program = [sys.executable, "-S", str(HERE / "job.py"), does]
        env = self._env | {"TANDEM_RUNTIME_DIR": str(runtime)}
        with subprocess.Popen(
            [*TANDEM, "run", *words, "--", *program],
            env=env,
            stdin=PIPE,
            stdout=PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            if process.stdout.readline() != "done\n":
                sys.exit("the job has failed")
            yield


def record(checkout: Path, folder: Path) -> Golden:
    """All that the two say, and the pages when the job has worked and when it is paused."""
    build = Build(checkout, folder)
    front = folder / "front"
    front.mkdir()
    with build.daemon():
        between = Between(front / "attach.sock", build.back / "attach.sock")
        with contextlib.ExitStack() as stack:
            ptx = HERE.parent / "ptx" / "elementwise.ptx"
            peer = stack.enter_context(contextlib.ExitStack())
            peer.enter_context(build.job(build.back, "-p", "latency", does="peer"))
            stack.enter_context(build.job(front, *WISHES, *build.swaps(), does=str(ptx)))
            time.sleep(SETTLES_S)
            between.keep_pages("at-work")
            build.run("pause", "golden")
            time.sleep(SETTLES_S)
            between.keep_pages("paused")
            build.run("resume", "golden")
            peer.close()
            time.sleep(SETTLES_S)
        refused(between)
    return between.golden


def refused(between: Between) -> None:
    """A process whose pages are laid out in a way that nobody knows."""
    hello = bytearray(between.golden.of("job", "HELLO")[0])
    LAYOUTS.pack_into(hello, LAYOUTS_AT, 900, 901)
    with between.connect() as daemon:
        daemon.send(hello)
        between.golden.said.append(("daemon", daemon.recv(4096)))


def main() -> None:
    """Write the record as <date>-<commit>.txt."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=Path)
    parser.add_argument("output", type=Path, nargs="?", default=HERE)
    arguments = parser.parse_args()
    checkout = arguments.build.absolute()
    command = ["git", "-C", checkout, "log", "-1", "--abbrev=8", "--format=%cs-%h"]
    name = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        golden = record(checkout, Path(folder))
    (arguments.output / f"{name}.txt").write_text(golden.text())


if __name__ == "__main__":
    main()
