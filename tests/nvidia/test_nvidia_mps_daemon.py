"""The whole daemon with NVIDIA's MPS control daemon, whose server ends as it does without a card.

The software GPU's NVML reports the GPUs. Jobs have NVIDIA's driver, which talks to that MPS.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import daemon_forks
import pytest
from mps import record

from tandem import softgpu
from tandem._mps import control_pid

PATIENCE_S = 60
CUINIT = "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"
NO_SERVER = 805


class Place:
    """A folder with a daemon in mode mps."""

    def __init__(self, folder, libraries, clean_env):
        self.folder, self.libraries = folder, libraries
        programs = folder / "bin"
        programs.mkdir()
        (programs / record.CONTROL).symlink_to(libraries / record.CONTROL)
        server = programs / record.SERVER
        server.write_text(f"#!/bin/sh\n{record.ENDS}\n")
        server.chmod(0o755)
        (folder / "config.toml").write_text('[gpu."*"]\nmode = "mps"\n')
        (folder / "gpu").mkdir()
        self.env = softgpu.environment(clean_env, folder=folder / "gpu", profile="h200")
        self.env |= {
            "PATH": f"{programs}:{self.env['PATH']}",
            "TANDEM_RUNTIME_DIR": str(folder),
        }

    def start(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready:
            ready.bind(str(self.folder / "ready"))
            ready.settimeout(PATIENCE_S)
            self.daemon = daemon_forks.start(
                ["--config", str(self.folder / "config.toml")],
                env=self.env | {"NOTIFY_SOCKET": str(self.folder / "ready")},
                log=self.folder / "log",
            )
            assert ready.recv(4096).startswith(b"READY=1")

    def run(self, *words, **variables):
        done = subprocess.run(
            [sys.executable, "-m", "tandem.cli", *words],
            env=self.env | variables,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        return done.stdout

    def job(self, name):
        """Run a job and return what NVIDIA's driver answers it."""
        words = ["run", "--require", "--isolation", "mps", "-J", name, "--", sys.executable]
        return int(self.run(*words, "-c", CUINIT, LD_LIBRARY_PATH=str(self.libraries)))

    def until(self, words, *command):
        while words not in (said := self.run(*command)):
            assert self.daemon.poll() is None
        return said

    def close(self):
        self.daemon.kill()
        self.daemon.wait(PATIENCE_S)
        record.end_daemons(self.folder)


@pytest.fixture
def place(libraries, clean_env):
    if not (libraries / record.CONTROL).exists():
        pytest.skip(f"no {record.CONTROL} in {libraries}")
    folder = Path(tempfile.mkdtemp(prefix="tandem-"))  # short, as sockets' names are
    made = Place(folder, libraries, clean_env)
    try:
        made.start()
        yield made
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)


def test_a_job_that_gets_no_server_is_told_why(place):
    assert place.job("refused") == NO_SERVER

    said = place.until("mps cannot start a server", "explain", "refused")

    assert "it ended with status 1): jobs that come to it get cuda's error 805" in said
    assert "mps cannot start a server" in (place.folder / "log").read_text()


def test_the_doctor_finds_it_and_does_not_blame_the_gpu(place):
    found = {one["check"]: one for one in json.loads(place.run("doctor", "--json"))}

    assert found["mps"]["text"] == (
        f"a control daemon answers in {place.folder / 'mps'}; servers: none"
    )
    sets = found["gpu 0, mode mps+green"]
    assert sets["level"] == "warn"
    assert "mps has started no server" in sets["text"]
    assert "control.log" in sets["remedy"]


def test_nothing_is_left_when_the_daemon_ends(place):
    pipes = place.folder / "mps"
    control = control_pid(pipes)

    place.daemon.send_signal(signal.SIGTERM)

    assert place.daemon.wait(PATIENCE_S) == 0
    assert not pipes.exists()
    assert not os.path.exists(f"/proc/{control}")


def test_one_that_was_killed_is_followed_by_another_which_goes_on_with_its_mps(place):
    control = control_pid(place.folder / "mps")
    place.daemon.kill()
    place.daemon.wait(PATIENCE_S)
    (place.folder / "ready").unlink()

    place.start()

    assert control_pid(place.folder / "mps") == control
    place.daemon.send_signal(signal.SIGTERM)
    place.daemon.wait(PATIENCE_S)
    assert not (place.folder / "mps").exists()


def test_one_that_is_killed_is_started_again_and_jobs_find_it(place):
    control = control_pid(place.folder / "mps")

    os.kill(control, signal.SIGKILL)
    pause = threading.Event()
    while control_pid(place.folder / "mps") in (None, control):
        assert place.daemon.poll() is None
        pause.wait(0.01)

    assert place.job("next") == NO_SERVER
