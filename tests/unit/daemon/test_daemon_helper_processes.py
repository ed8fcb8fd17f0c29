"""For whom the helper makes checkpoint calls: living processes that run under Tandem."""

import os
import queue
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest

from tandem.errors import AccessError, StateError, UsageError
from tandemd.edges.checkpoint_driver import CheckpointDriver
from tandemd.helper import processes
from tandemd.helper.service import _details
from tandemd.helper.verbs import Verbs
from tandemd.helper.wire import Checkpoint

DEADLINE_S = 30
LOCK = Checkpoint(call="Lock")
# Maps a file, as the loader maps a library, and reports that it has.
MAPPING = """
import mmap, sys
with open(sys.argv[1], "r+b") as file:
    mapped = mmap.mmap(file.fileno(), 4096)
print(flush=True); sys.stdin.read()
"""


class Driver:
    """Records the pids of its calls; each call waits for `gate`."""

    def __init__(self):
        self.asked = queue.SimpleQueue()
        self.gate = threading.Event()
        self.gate.set()

    def __getitem__(self, symbol):
        def call(pid, argument):
            self.asked.put((symbol, pid))
            if symbol.endswith("GetState"):
                argument._obj.value = 2
            assert self.gate.wait(DEADLINE_S)
            return 0

        return call


@pytest.fixture
def driver():
    return Driver()


@pytest.fixture
def verbs(driver):
    return Verbs(CheckpointDriver(lambda: driver), None)


@contextmanager
def process(tmp_path, library=processes.SHIM):
    """A process that has mapped such a library, and its pidfd."""
    path = tmp_path / library
    path.write_bytes(b"x" * 4096)
    words = [sys.executable, "-c", MAPPING, str(path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        pidfd = os.pidfd_open(child.pid)
        try:
            yield child, pidfd
        finally:
            os.close(pidfd)
            child.kill()


def test_a_call_is_made_for_the_process_that_the_descriptor_means(tmp_path, verbs, driver):
    with process(tmp_path) as (child, pidfd):
        answer = verbs.do(Checkpoint(call="GetState"), (pidfd,))

    assert driver.asked.get_nowait() == ("cuCheckpointProcessGetState", child.pid)
    assert (answer.state, answer.process) == (2, child.pid)
    assert _details(LOCK, answer) == {
        "verb": "checkpoint",
        "call": "Lock",
        "process": str(child.pid),
    }


def test_one_whose_library_an_upgrade_has_replaced_is_under_tandem_still(tmp_path, verbs, driver):
    with process(tmp_path) as (child, pidfd):
        (tmp_path / processes.SHIM).unlink()
        verbs.do(LOCK, (pidfd,))

    assert driver.asked.get_nowait()[1] == child.pid


@pytest.mark.parametrize("library", ["libtandem.so.1", "xlibtandem.so", "libc.so"])
def test_a_process_that_is_not_under_tandem_is_refused(tmp_path, verbs, driver, library):
    with (
        process(tmp_path, library) as (child, pidfd),
        pytest.raises(AccessError, match=f"pid {child.pid} is not under Tandem"),
    ):
        verbs.do(LOCK, (pidfd,))

    assert driver.asked.empty()


def test_a_process_that_has_ended_is_none_whoever_has_its_pid(tmp_path, verbs, driver):
    with process(tmp_path) as (child, pidfd):
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(StateError, match="the process has ended"):
            verbs.do(LOCK, (pidfd,))  # its pid has not been reused yet
        child.wait()
        with pytest.raises(StateError, match="the process has ended"):
            verbs.do(LOCK, (pidfd,))

    assert driver.asked.empty()


def test_one_that_ends_before_the_call_is_left_alone(tmp_path, verbs, driver, monkeypatch):
    with process(tmp_path) as (child, pidfd):
        has_shim = processes._has_shim

        def end_meanwhile(pid):
            found = has_shim(pid)
            child.kill()
            child.wait()
            return found

        monkeypatch.setattr(processes, "_has_shim", end_meanwhile)
        with pytest.raises(StateError, match="the process has ended"):
            verbs.do(LOCK, (pidfd,))

    assert driver.asked.empty()


@pytest.mark.parametrize("count", [0, 2])
def test_it_takes_exactly_one_descriptor(verbs, count):
    with pytest.raises(UsageError, match="checkpoint takes 1 descriptor"):
        verbs.do(LOCK, (0,) * count)


def test_a_descriptor_that_is_no_pidfd_is_refused(verbs, tmp_path):
    with (tmp_path / "Pid:").open("w") as file, pytest.raises(UsageError, match="is not a pidfd"):
        verbs.do(LOCK, (file.fileno(),))


def test_nothing_else_is_done_with_a_process_that_a_call_is_under_way_for(tmp_path, verbs, driver):
    with process(tmp_path) as (child, pidfd):
        driver.gate.clear()
        first = threading.Thread(target=verbs.do, args=(LOCK, (pidfd,)))
        first.start()
        driver.asked.get(timeout=DEADLINE_S)

        with pytest.raises(StateError, match=f"the driver is still moving pid {child.pid}"):
            verbs.do(LOCK, (pidfd,))

        driver.gate.set()
        first.join()
        verbs.do(LOCK, (pidfd,))  # the first call has ended, so this is allowed


def test_what_the_driver_refuses_is_a_wrong_state(tmp_path):
    class Refusing:
        def __getitem__(self, _symbol):
            return lambda *_: 801

        def cuGetErrorName(self, _status, _out):  # noqa: N802
            return 1

    with process(tmp_path) as (_, pidfd), pytest.raises(StateError, match="answers error 801"):
        Verbs(CheckpointDriver(Refusing), None).do(LOCK, (pidfd,))
