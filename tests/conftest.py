"""Settings for every test, and a daemon for programs that run under Tandem."""

import fcntl
import gc
import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tandem import softgpu
from tandem.demo.process import Daemon

# Use the same examples in every run: a merge must not depend on luck. To hunt for new ones:
# pytest --hypothesis-profile=explore
settings.register_profile(
    "repeatable", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile("repeatable")

# Background jobs of a shell ignore Ctrl-C. The processes they start inherit that, down to the
# programs that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# The settings of the person who runs the tests must not apply to the tests' jobs.
os.environ["XDG_CONFIG_HOME"] = "/nonexistent"


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    # Nearly all objects made during collection stay alive, so the garbage collector would find
    # nothing.
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(items):
    # Long tests first: one started last would keep running alone while the other workers idle.
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.fixture(scope="session")
def serve():
    """Start a daemon for programs with the given environment; return the environment they need."""
    started = []
    # The names of pytest's own folders are too long for a socket.
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
def made_once(tmp_path_factory):
    """Make a file once for all workers of a test run: `made_once(name, make)` calls make(path)."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # shared by the whole run

    def find(name, make):
        path = folder / "made-once" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.with_name(f"{path.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                half = path.with_name(f"{path.name}.half")
                make(half)
                half.rename(path)
        return path

    return find


@pytest.fixture(scope="session")
def image(made_once):
    """The kernels of the conformance tests, as a module for the software GPU."""
    source = Path(__file__).parent / "conformance" / "kernels.cu"
    return made_once("kernels.so", lambda path: softgpu.compile_kernels(source, path))


@pytest.fixture(scope="session")
def clean_env():
    return {k: v for k, v in os.environ.items() if not k.startswith(("TANDEM_", "LD_PRELOAD"))}
