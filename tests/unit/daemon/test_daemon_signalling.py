"""Signals to real processes."""

import os
import signal
import subprocess
import sys

import pytest

from tandemd.edges.peers import open_pidfd
from tandemd.edges.signals import Target, send, why_not

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another uid")
NOBODY = 65534
UID = os.geteuid()
PATIENCE_S = 60


@pytest.fixture
def start():
    """Starts a process that does nothing, as another uid if one is given."""
    begun = []

    def start(uid=UID):
        become = f"os.setuid({uid})" if uid != UID else "pass"
        program = f"import os, sys; {become}; print(flush=True); sys.stdin.read()"
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        begun.append(subprocess.Popen([sys.executable, "-c", program], **pipes))
        begun[-1].stdout.readline()
        return begun[-1]

    yield start
    for process in begun:
        with process:
            process.kill()


def lives(process):
    """Lets the process go, and tells whether it ended normally."""
    process.communicate(timeout=PATIENCE_S)
    return process.returncode == 0


def target_of(process):
    return Target(pid=process.pid, pidfd=open_pidfd(process.pid))


def test_a_signal_arrives(start):
    process = start()

    assert send(target_of(process), signal.SIGTERM, uid=UID) == ""

    assert process.wait(PATIENCE_S) == -signal.SIGTERM


def test_a_process_that_is_stopped_notices(start):
    process = start()
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)

    assert send(target_of(process), signal.SIGTERM, uid=UID) == ""

    assert process.wait(PATIENCE_S) == -signal.SIGTERM


def test_a_look_whether_it_could_be_signalled_does_nothing(start):
    process = start()

    assert why_not(target_of(process), uid=UID) == ""

    assert lives(process)


def test_whoever_has_the_pid_of_a_process_that_has_ended_is_left_alone(start):
    ended, other = start(), start()
    pidfd = open_pidfd(ended.pid)
    ended.kill()
    ended.wait()

    assert send(Target(pid=other.pid, pidfd=pidfd), signal.SIGKILL, uid=UID) == ""

    assert lives(other)


@as_root
def test_a_process_that_became_another_users_is_left_alone(start):
    process = start(NOBODY)

    why = send(target_of(process), signal.SIGKILL, uid=1000)

    assert why == f"pid {process.pid} runs as uid {NOBODY} now, which uid 1000 may not signal"
    assert lives(process)


@as_root
@pytest.mark.parametrize("uid", [0, NOBODY])
def test_root_and_its_own_user_may_signal_it(start, uid):
    process = start(NOBODY)

    assert send(target_of(process), signal.SIGTERM, uid=uid) == ""

    assert process.wait(PATIENCE_S) == -signal.SIGTERM


def test_where_there_are_no_pidfds_nobody_is_signalled(start):
    process = start()

    why = send(Target(pid=process.pid, pidfd=None), signal.SIGKILL, uid=UID)

    assert why == f"pid {process.pid}: this kernel has no pidfds; Linux 5.3 and newer do"
    assert lives(process)
