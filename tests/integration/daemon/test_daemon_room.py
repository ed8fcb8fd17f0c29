"""A daemon whose resource limits are too low names the limit and its need, and does not start."""

import resource
import subprocess
import sys
import threading

import pytest
from fake_shim import PATIENCE_S

from tandem.errors import StateError
from tandemd import room


def ended_under(limits, daemon):
    """Run a daemon under limits; return its output and exit code. It has limits of its own."""
    program = [sys.executable, "-m", "tandemd", *daemon.arguments("--log-level", "error")]
    said = subprocess.run(
        ["sh", "-c", f'{limits}; exec "$@"', "sh", *program],
        env=daemon.environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    return said.stderr.splitlines(), said.returncode


def test_an_address_space_too_small_for_what_is_imported_is_said_in_one_line(daemon):
    assert ended_under("ulimit -v 50000", daemon) == (
        [
            "error: the limit of address space is 50000 KiB and tandemd needs 1048576; raise it "
            "(ulimit -v, or LimitAS= of the unit)"
        ],
        4,
    )


def test_an_address_space_without_room_for_threads_is_said_in_one_line(daemon):
    (line,), code = ended_under("ulimit -s 131072; ulimit -v 1100000", daemon)

    assert code == 4
    assert line.startswith("error: tandemd needs 32 threads, but can start only ")
    assert "ulimit -v, which is 1100000 KiB" in line


def test_a_full_disk_for_the_log_ends_nothing(daemon):
    program = [sys.executable, "-m", "tandemd", *daemon.arguments("--log-level", "debug")]
    with open("/dev/full", "w") as full, daemon.made_ready():
        daemon.process = subprocess.Popen(program, env=daemon.environment(), stderr=full)
    shim = daemon.shim()
    shim.socket.close()

    assert daemon.stop() == 0


def test_too_few_threads_are_told_with_the_limit_of_the_user(monkeypatch):
    start, begun = threading.Thread.start, []

    def start_few(thread):
        if len(begun) == 5:
            raise RuntimeError("can't start new thread")
        begun.append(thread)
        start(thread)

    limits = {resource.RLIMIT_NPROC: 9, resource.RLIMIT_AS: resource.RLIM_INFINITY}
    monkeypatch.setattr(resource, "getrlimit", lambda which: (limits[which], limits[which]))
    monkeypatch.setattr(threading.Thread, "start", start_few)

    with pytest.raises(StateError) as told:
        room.require_threads()

    assert str(told.value) == (
        "tandemd needs 32 threads, but can start only 5; raise the limit in its way: ulimit -u, "
        "which is 9 for all threads of the user, or TasksMax= in the unit (pids.max of the cgroup)"
    )
    assert not any(thread.is_alive() for thread in begun)
