"""Settings for every test, and a daemon for programs that run under Tandem."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tandem.demo.process import Daemon

# The same examples each time: a merge may not depend on luck. To hunt for new ones:
# pytest --hypothesis-profile=explore
settings.register_profile(
    "repeatable", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile("repeatable")


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
