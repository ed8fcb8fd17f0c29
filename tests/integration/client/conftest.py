"""A real daemon, a fake one, and the `tandem` command as a process."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import daemon_forks
import pytest

from tandem import _attach
from tandem._client import Client

ROOT = Path(__file__).resolve().parents[3]
DEADLINE_S = 30


@pytest.fixture
def runtime_dir():
    # The names of pytest's own folders are too long for a socket.
    folder = Path(tempfile.mkdtemp(prefix="tandem-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)  # the software GPU ends shortly after its users


@pytest.fixture
def environ(runtime_dir):
    own = {k: v for k, v in os.environ.items() if not k.startswith(("TANDEM_", "LD_PRELOAD"))}
    paths = os.pathsep.join([str(ROOT / "client"), str(ROOT / "daemon")])
    return own | {"TANDEM_RUNTIME_DIR": str(runtime_dir), "PYTHONPATH": paths}


@pytest.fixture
def tandem(environ):
    """Run `tandem WORDS...` to its end; return the result, with the `pid` of the process."""

    def run(*words, **more):
        process = subprocess.Popen(
            [sys.executable, "-m", "tandem.cli.__main__", *map(str, words)],
            env=environ | more,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        out, err = process.communicate(timeout=DEADLINE_S)
        done = subprocess.CompletedProcess(words, process.returncode, out, err)
        done.pid = process.pid
        return done

    return run


class Daemon:
    """A tandemd process that a test starts and stops."""

    def __init__(self, environ):
        self._environ = environ
        self._process = None

    def start(self):
        directory = Path(self._environ["TANDEM_RUNTIME_DIR"])
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready:
            ready.bind(str(directory / "ready"))
            ready.settimeout(DEADLINE_S)
            self._process = daemon_forks.start(
                [],
                env=self._environ | {"NOTIFY_SOCKET": str(directory / "ready")},
                log=os.devnull,
            )
            while b"READY=1" not in ready.recv(4096):
                pass
        (directory / "ready").unlink()

    @property
    def pid(self):
        return self._process.pid

    def stop(self):
        if self._process is not None:
            self._process.terminate()
            self._process.wait(DEADLINE_S)
            self._process = None

    def kill(self):
        self._process.kill()
        self._process.wait(DEADLINE_S)
        self._process = None


@pytest.fixture
def daemon(environ):
    daemon = Daemon(environ)
    daemon.start()
    yield daemon
    daemon.stop()


@pytest.fixture
def client(daemon, runtime_dir):
    with Client(directory=str(runtime_dir)) as client:
        yield client


@pytest.fixture
def job(daemon, environ):
    """The name of a job that does nothing until the test ends."""
    asked = "-p normal -J sleeper -m 1GiB --slo p99=50ms --no-preemptible -G team"
    show = "import os, sys; print(os.environ['TANDEM_JOB_ID'], flush=True); sys.stdin.read()"
    words = ["run", "--require", *asked.split(), "--", sys.executable, "-c", show]
    process = subprocess.Popen(
        [sys.executable, "-m", "tandem.cli.__main__", *words],
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    name = process.stdout.readline().strip()
    assert name, f"it ended with code {process.wait(DEADLINE_S)}"
    yield name
    process.communicate()


class Attached:
    """An attach socket that answers every REGISTER with the same packet."""

    def __init__(self, path, reply):
        self.packets = []
        self.pids = []
        self._reply = reply
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(path))
        self._listener.listen(8)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self):
        while True:
            connection, _ = self._listener.accept()
            with connection:
                packet = connection.recv(_attach.MAX_MESSAGE_BYTES)
                if not packet:
                    return
                peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
                self.pids.append(int.from_bytes(peer[:4], sys.byteorder))
                self.packets.append(packet)
                if self._reply is None:
                    connection.recv(1)  # like a hung daemon: the caller has to give up
                else:
                    connection.send(self._reply)

    def close(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as last:
            last.connect(self._listener.getsockname())
        self._thread.join()
        self._listener.close()


@pytest.fixture
def attached(runtime_dir):
    """Start a fake attach socket that gives every caller the same reply; None never replies."""
    running = []

    def start(reply):
        running.append(Attached(runtime_dir / "attach.sock", reply))
        return running[-1]

    yield start
    for fake in running:
        fake.close()
