"""A daemon for bodies that run under Tandem, beside the device they run on."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from tandem.demo.process import Daemon


@pytest.fixture(scope="session")
def serve():
    """Start a daemon for programs with that environment; returns theirs."""
    started = []
    # pytest's own folders have names too long for a socket.
    folder = Path(tempfile.mkdtemp(prefix="tandem-"))

    def start(env):
        runtime_dir = folder / str(len(started))
        runtime_dir.mkdir(mode=0o700)
        env = {**env, "TANDEM_RUNTIME_DIR": str(runtime_dir)}
        started.append(Daemon(env=env, runtime_dir=runtime_dir, log=folder / "tandemd.log"))
        return env

    yield start
    for daemon in started:
        daemon.close()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def clean_env():
    return {k: v for k, v in os.environ.items() if not k.startswith(("TANDEM_", "LD_PRELOAD"))}
