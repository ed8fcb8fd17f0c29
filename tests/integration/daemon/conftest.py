"""A real tandemd for each test."""

import shutil
import signal
import tempfile
from pathlib import Path

import pytest
from running_daemon import RunningDaemon


@pytest.fixture
def daemon():
    base = Path(tempfile.mkdtemp(prefix="tandemd"))
    base.chmod(0o755)  # lets other uids reach the sockets
    daemon = RunningDaemon(base)
    try:
        yield daemon
    finally:
        daemon.stop(signal.SIGKILL)
        for shim in daemon.shims:
            shim.close()
        shutil.rmtree(base)
