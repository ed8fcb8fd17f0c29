"""A daemon with its own runtime directory, and what the parts of `make gpu` share."""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from tandem.demo.process import Daemon

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # for `bench`


@pytest.fixture(scope="session")
def made(made_once):
    """The folder for what the parts of `make gpu` compile, once for all tests."""
    return made_once("parts", Path.mkdir)


@pytest.fixture
def daemon():
    """Start a daemon; return the environment in which `tandem run` finds it."""
    # The names of pytest's own folders are too long for a socket.
    folder = Path(tempfile.mkdtemp(prefix="tandem-"))
    own = {k: v for k, v in os.environ.items() if not k.startswith(("TANDEM_", "LD_PRELOAD"))}
    paths = [str(ROOT / "client"), str(ROOT / "daemon")]
    paths += [p for p in own.get("PYTHONPATH", "").split(os.pathsep) if p]
    environ = own | {
        "TANDEM_RUNTIME_DIR": str(folder),
        "PYTHONPATH": os.pathsep.join(paths),
    }
    started = Daemon(env=environ, runtime_dir=folder, log=folder / "tandemd.log")
    yield environ
    started.close()
    shutil.rmtree(folder, ignore_errors=True)
