"""Supervision of MPS, against the software GPU's control program and its stdin commands."""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from pathlib import Path
from typing import ClassVar

import pytest
from mps.record import end_daemons
from mps_client import PATIENCE_S, client_of
from structlog.testing import capture_logs

from tandem import _mps, _set_probe, softgpu
from tandem._mps import PIPES, PROGRAM
from tandemd.edges.mps import LeftMps, MpsControl
from tandemd.edges.mps_own import OwnMps


class Supervised:
    """A test's MPS control, what it told jobs, and the thread that it runs in."""

    made: ClassVar[list] = []  # by this test; some end like a killed daemon, without `stop`

    def __init__(self, folder, look_s=0.02, uid=0, gpus=(), **variables):
        self.made.append(self)
        self.told = []
        self.heard = threading.Condition()
        self.environment = softgpu.environment(folder=folder / "gpu") | variables
        self.own = folder / "mps"
        self.control = MpsControl(
            own=self.own,
            environment=self.environment,
            gpus=gpus,
            tell=self._hear,
            uid=uid,
            look_s=look_s,
        )
        self._thread = threading.Thread(target=self.control.run)

    def _hear(self, what, ago_s):
        assert 0 <= ago_s <= PATIENCE_S
        with self.heard:
            self.told.append(what)
            self.heard.notify_all()

    def watch(self):
        self._thread.start()

    def stop(self):
        self.control.stop()
        if self._thread.ident is not None:
            self._thread.join(PATIENCE_S)

    def hears(self, words):
        with self.heard:
            return self.heard.wait_for(lambda: any(words in told for told in self.told), PATIENCE_S)

    def ask(self, command, place=None):
        """Return the answer, or None if nobody answers; ask again while it serves another."""
        end_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < end_s:
            done = subprocess.run(
                [PROGRAM],
                env=self.environment | {PIPES: str(place or self.own)},
                input=command,
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                check=False,
            )
            if "Cannot send command" not in done.stderr:
                return done.stdout if done.returncode == 0 else None
        return None

    @property
    def pid(self):
        return int((self.own / "nvidia-cuda-mps-control.pid").read_text())


@pytest.fixture
def folder():
    made = Path(tempfile.mkdtemp(prefix="mps-"))  # pytest's names are too long for a socket
    (made / "gpu").mkdir()
    yield made
    end_daemons(made)
    for one in Supervised.made:  # else what it started stays as an unreaped process
        if one.control._own._child is not None:
            one.control._own._child.wait(PATIENCE_S)
    Supervised.made.clear()
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def mps(folder):
    made = Supervised(folder)
    yield made
    made.stop()


def control_of(place):
    return {_set_probe.CONTROL: str(place)}


def test_one_is_started_where_none_runs_and_ended_with_the_daemon(mps):
    assert mps.control.open()

    assert mps.control.is_own
    assert mps.control.variables() == {PIPES: str(mps.own)}
    assert mps.ask("get_default_active_thread_percentage") == "100.0\n"
    mps.stop()
    assert not mps.own.exists()
    assert mps.ask("get_server_list") is None


def test_its_log_is_not_where_it_has_a_fifo_of_its_own(mps):
    assert mps.control.open()

    mps.ask("get_server_list")

    assert (mps.own / "log").is_fifo()
    assert "Cmd:get_server_list" in (mps.own / "logs" / "said").read_text()


def test_a_pipe_directory_whose_sockets_names_would_be_too_long_is_refused(tmp_path):
    own = OwnMps(tmp_path / ("n" * 88), {})

    with pytest.raises(OSError, match=r"has \d+ bytes, and mps takes at most 87"):
        own.start(["-f"], os.environ)

    assert list(tmp_path.iterdir()) == []


def test_in_a_directory_that_the_environment_names_only_what_is_ours_goes(folder):
    named = folder / "named"
    named.mkdir()
    (named / "theirs").touch()
    mps = Supervised(folder, **{PIPES: str(named)})
    assert mps.control.open()

    mps.stop()

    left = {path.name for path in named.iterdir()}
    assert left == {"theirs", "control", "control_lock", "control_privileged"}  # like NVIDIA's


def test_it_is_started_without_what_other_threads_have_for_forks(mps):
    """Fork handlers such as gRPC's write to the log, which other threads may be using then."""
    forks = []
    os.register_at_fork(before=lambda: forks.append(1))

    assert mps.control.open()

    assert forks == []
    ignored = re.search(
        r"^SigIgn:\s*(\w+)$", Path(f"/proc/{mps.pid}/status").read_text(), re.MULTILINE
    )
    assert not int(ignored[1], 16) & 1 << signal.SIGXFSZ - 1


def test_its_servers_end_with_it_though_the_daemon_blocks_signals(mps):
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        assert mps.control.open()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    client_of(mps.own).close()
    assert mps.ask("get_server_list")

    mps.stop()

    assert mps.ask("get_server_list") is None


@pytest.mark.parametrize("clock", ["real", "virtual"])
def test_sets_are_proved_on_the_device_that_the_server_has(folder, clock):
    mps = Supervised(folder, TANDEM_SOFTGPU_PROFILE="h200", TANDEM_SOFTGPU_CLOCK=clock)
    assert mps.control.open()

    found = _set_probe.probe(mps.environment | mps.control.variables() | control_of(mps.own))

    assert (found.groups, found.group_sms, found.problem) == (16, 8, "")
    mps.stop()


def test_beside_other_clients_sets_may_share_sms_or_not(folder):
    mps = Supervised(folder, TANDEM_SOFTGPU_PROFILE="h200", TANDEM_SOFTGPU_GREEN="shared")
    assert mps.control.open()
    environment = mps.environment | mps.control.variables() | control_of(mps.own)

    with client_of(mps.own):
        beside = _set_probe.probe(environment)
    (server,) = mps.ask("get_server_list").split()
    assert has_no_clients(mps, server)
    alone = _set_probe.probe(environment)

    assert (beside.problem, beside.is_answer) == (_set_probe.CROWDED, False)
    assert (alone.problem, alone.is_answer) == (_set_probe.SHARED, True)
    mps.stop()


def test_who_has_work_in_it_is_not_made_to_wait_for_a_proof(mps, monkeypatch):
    assert mps.control.open()
    other = os.geteuid() + 1
    monkeypatch.setattr(_mps.Server, "owner", other)

    def found():
        return _set_probe.as_client(mps.own, mps.environment, timeout_s=PATIENCE_S)

    with client_of(mps.own):
        assert found() == f"the running mps serves uid {other} now"

    (server,) = mps.ask("get_server_list").split()
    assert has_no_clients(mps, server)
    assert found() == mps.environment | {PIPES: str(mps.own)} | control_of(mps.own)


def test_what_ran_without_mps_proves_nothing_of_it(folder):
    mps = Supervised(folder, TANDEM_SOFTGPU_PROFILE="h200")
    assert mps.control.open()
    before = mps.environment | {PIPES: str(folder / "not-yet")} | control_of(mps.own)

    found = _set_probe.probe(before)

    assert "the processes were not clients of mps" in found.problem
    assert not found.is_answer
    mps.stop()
    found = _set_probe.probe(before)
    assert "mps ended meanwhile" in found.problem
    assert not found.is_answer


def test_one_that_runs_already_is_used_and_left_running(folder):
    theirs = folder / "theirs"
    environment = softgpu.environment(folder=folder / "gpu") | {
        PIPES: str(theirs),
        "CUDA_MPS_LOG_DIRECTORY": str(theirs),
    }
    subprocess.run([PROGRAM, "-d"], env=environment, check=True, timeout=PATIENCE_S)
    mps = Supervised(folder, **{PIPES: str(theirs)})

    assert mps.control.open()

    assert not mps.control.is_own
    assert mps.control.variables() == {PIPES: str(theirs)}
    mps.stop()
    assert mps.ask("get_server_list", theirs) == ""


def test_where_none_is_to_be_started_one_that_ends_is_waited_for(folder):
    mps = Supervised(folder, gpus=None, **{PIPES: str(folder / "theirs")})
    environment = mps.environment | {"CUDA_MPS_LOG_DIRECTORY": str(folder / "theirs")}
    subprocess.run([PROGRAM, "-d"], env=environment, check=True, timeout=PATIENCE_S)
    assert mps.control.open()

    mps.ask("quit", folder / "theirs")
    there = [mps.control._look(), mps.control._look()]
    assert mps.control.directory is None
    subprocess.run([PROGRAM, "-d"], env=environment, check=True, timeout=PATIENCE_S)

    assert [*there, mps.control._look()] == [False, False, True]
    assert [one.partition(":")[0] for one in mps.told] == [
        "the control daemon of mps has ended",
        "mps runs again",
    ]
    assert not mps.control.is_own


def test_one_that_is_slow_to_answer_has_not_ended(mps, monkeypatch):
    assert mps.control.open()
    pid = mps.pid
    monkeypatch.setattr("tandemd.edges.mps.ANSWER_S", 0.1)

    os.kill(pid, signal.SIGSTOP)
    try:
        assert mps.control._look()
        mps.stop()  # nobody knows whether it has clients
        following = Supervised(mps.own.parent)
        assert not following.control.open()
    finally:
        os.kill(pid, signal.SIGCONT)
    monkeypatch.undo()

    assert mps.told == []
    assert mps.pid == pid
    assert following.control.open()
    assert following.control.is_own
    following.stop()
    assert not mps.own.exists()


def test_one_that_is_being_started_when_the_daemon_ends_is_given_up(folder):
    programs = folder / "bin"
    programs.mkdir()
    os.mkfifo(folder / "begun")
    program = programs / PROGRAM
    script = f'[ "$1" = -f ] && echo $$ > {folder / "begun"} && exec sleep 60; exit 1'
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    mps = Supervised(folder, PATH=f"{programs}:{os.environ['PATH']}")
    mps.watch()
    pid = int((folder / "begun").read_text())

    mps.stop()

    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert mps.told == []


def test_one_that_makes_no_pipe_is_not_left_running(folder, monkeypatch):
    programs = folder / "bin"
    programs.mkdir()
    program = programs / PROGRAM
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setattr("tandemd.edges.mps.START_S", 0.5)
    mps = Supervised(folder, PATH=f"{programs}:{os.environ['PATH']}")

    assert not mps.control.open()

    assert mps.control._own._child is None
    mps.stop()


def test_whose_it_is_can_be_asked_while_another_thread_sees_it_end(folder):
    own = OwnMps(folder / "mps", {})

    class Ending:
        pid = 1

        def poll(self):
            own._child = None

    own._child = Ending()

    assert own.pid == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes another user's directory")
def test_a_directory_that_root_has_made_for_us_will_do_and_no_other_users(folder, monkeypatch):
    named = folder / "named"
    named.mkdir()
    own = OwnMps(folder, {PIPES: str(named)})
    monkeypatch.setattr(os, "geteuid", lambda: 4242)

    assert own.write_file("x").read_text() == "x"

    os.chown(named, 4243, -1)
    with pytest.raises(PermissionError, match="not ours"):
        own.write_file("y")


def test_one_that_was_left_elsewhere_is_not_called_silent(mps, monkeypatch):
    monkeypatch.setattr(_mps, "USUAL_PIPES", mps.own.parent / "theirs")
    assert mps.control.open()
    with client_of(mps.own):
        mps.stop()
        following = Supervised(mps.own.parent, gpus=None)

        with capture_logs() as said:
            assert not following.control.open()

        assert said == []
    following.stop()


def test_nothing_is_removed_where_the_control_daemon_is_not_ours(folder):
    theirs, victim = folder / "theirs", folder / "victim"
    victim.mkdir()
    names = {"control.log", "server.log", "said"}
    for name in names:
        (victim / name).touch()
    mps = Supervised(folder, **{PIPES: str(theirs)})
    variables = mps.environment | {"CUDA_MPS_LOG_DIRECTORY": str(folder)}
    subprocess.run([PROGRAM, "-d"], env=variables, check=True, timeout=PATIENCE_S)
    assert mps.ask("get_server_list", theirs) == ""  # by now it has written its pid
    (theirs / "logs").symlink_to(victim)
    (folder / "pid").write_bytes((theirs / "nvidia-cuda-mps-control.pid").read_bytes())
    (theirs / "started-by-tandemd").symlink_to(folder / "pid")

    assert mps.control.open()
    assert not mps.control.is_own
    mps.stop()

    assert mps.ask("get_server_list", theirs) == ""
    assert {path.name for path in victim.iterdir()} == names


def test_a_named_directory_keeps_its_mode_and_links_in_it_are_not_followed(folder):
    named, victim = folder / "named", folder / "victim"
    victim.mkdir()
    (victim / "said").touch()
    named.mkdir()
    named.chmod(0o1777)
    (named / "logs").symlink_to(victim)
    mps = Supervised(folder, **{PIPES: str(named)})

    assert not mps.control.open()

    assert named.stat().st_mode & 0o7777 == 0o1777
    assert {path.name for path in victim.iterdir()} == {"said"}


def test_the_next_daemon_takes_over_what_one_before_it_has_started(mps, folder):
    assert mps.control.open()
    pid = mps.pid
    following = Supervised(folder)

    assert following.control.open()

    assert following.control.is_own
    assert mps.pid == pid
    following.stop()
    assert mps.ask("get_server_list") is None


@pytest.fixture
def ending(folder, mps):
    """A control daemon that was told to quit and waits for its last client."""
    assert mps.control.open()
    client = client_of(mps.own)
    quitting = subprocess.Popen(
        [PROGRAM], env=mps.environment | {PIPES: str(mps.own)}, stdin=subprocess.PIPE, text=True
    )
    quitting.stdin.write("quit\n")
    quitting.stdin.close()
    said, pause = mps.own / "logs" / "said", threading.Event()
    while "Cmd:quit" not in said.read_text():
        pause.wait(0.01)
    yield client
    client.close()
    quitting.wait(PATIENCE_S)


def test_one_that_is_about_to_end_is_not_used(mps, folder, ending, monkeypatch):
    monkeypatch.setattr("tandemd.edges.mps.ANSWER_S", 0.1)
    following = Supervised(folder)

    assert not following.control.open()

    assert following.control.variables() == {}


def test_once_one_has_ended_there_is_another(mps, folder, ending):
    pid, following, pause = mps.pid, Supervised(folder), threading.Event()

    ending.close()
    while _mps.is_running(pid):
        pause.wait(0.01)
    assert following.control.open()

    assert following.control.is_own
    assert following.pid != pid
    following.stop()


def test_it_is_left_alone_while_it_has_clients(mps):
    assert mps.control.open()
    with client_of(mps.own):
        mps.stop()

        assert mps.ask("get_server_list").strip().isdecimal()


def test_one_that_was_left_for_its_clients_is_ended_when_they_have_gone(mps):
    assert mps.control.open()
    pid, client = mps.pid, client_of(mps.own)
    mps.stop()
    left, looks = LeftMps(mps.own, mps.environment, look_s=0.02), threading.Semaphore(0)

    def clients(server, ask=left._control.clients):
        looks.release()
        return ask(server)

    left._control.clients = clients
    was_there, watching = left.is_there, threading.Thread(target=left.run)
    watching.start()

    assert all(looks.acquire(timeout=PATIENCE_S) for _ in range(2))  # so one whole look has ended
    status = mps.ask(f"get_server_status {mps.ask('get_server_list').strip()}")
    client.close()
    watching.join(PATIENCE_S)

    assert was_there
    assert status == "ACTIVE\n"  # it still accepts clients
    assert not left.is_there
    assert not _mps.is_running(pid)


def test_who_waits_for_the_clients_of_one_that_was_left_can_be_stopped(mps):
    assert mps.control.open()
    with client_of(mps.own):
        mps.stop()
        left = LeftMps(mps.own, mps.environment, look_s=PATIENCE_S)
        watching = threading.Thread(target=left.run)
        watching.start()

        left.stop()
        watching.join(PATIENCE_S)

        assert not watching.is_alive()
        assert left.is_there


def test_a_control_daemon_that_is_killed_is_replaced_and_jobs_are_told(mps):
    assert mps.control.open()
    pid = mps.pid
    mps.watch()

    os.kill(pid, signal.SIGKILL)

    assert mps.hears("mps runs again: jobs that start now use it")
    assert mps.told[0] == "the control daemon of mps has ended: jobs that used it get cuda's errors"
    assert mps.pid != pid
    assert mps.ask("get_server_list") == ""


def test_jobs_are_told_before_another_one_is_started_for_they_end_by_it(mps, monkeypatch):
    assert mps.control.open()
    told_first = []
    monkeypatch.setattr(mps.control, "open", lambda: bool(told_first.extend(mps.told)))

    mps.ask("quit")
    mps.control._look()

    assert [one.partition(":")[0] for one in told_first] == ["the control daemon of mps has ended"]
    assert mps.control.directory is None


def test_servers_of_ours_that_nobody_uses_can_be_ended_and_nobody_is_told(mps):
    assert mps.control.open()
    with client_of(mps.own):
        server = int(mps.ask("get_server_list"))
        assert mps.control.idle_servers() == frozenset()
    assert has_no_clients(mps, server)
    assert mps.control._look()

    idle = mps.control.idle_servers()
    mps.control.end_servers(idle)

    assert idle == {server}
    assert mps.ask("get_server_list") == ""
    assert mps.control._look()
    assert mps.told == []
    assert mps.control.is_own


def has_no_clients(mps, server):
    """Wait until the control daemon knows that the last client has gone."""
    pause = threading.Event()
    while mps.ask(f"get_client_list {server}"):
        pause.wait(0.01)
    return True


def test_jobs_are_told_of_a_crashed_server_that_had_clients_and_of_no_other(mps):
    assert mps.control.open()
    with client_of(mps.own):
        server = int(mps.ask("get_server_list"))
        assert mps.control._look()  # now it knows of the client

        os.kill(server, signal.SIGKILL)
        until = threading.Event()
        while mps.ask("get_server_list").strip() == str(server):
            until.wait(0.01)
        assert mps.control._look()

    assert mps.told == [
        f"the mps server {server} has ended: jobs that used it get cuda's errors; those that start "
        "now get another server"
    ]


def has_gone(mps, server):
    """Wait until the control daemon knows that the server has gone."""
    pause = threading.Event()
    while str(server) in mps.ask("get_server_list").split():
        pause.wait(0.01)


def test_jobs_are_told_of_a_server_that_crashed_before_anybody_looked(mps):
    assert mps.control.open()
    with client_of(mps.own):
        server = int(mps.ask("get_server_list"))

        os.kill(server, signal.SIGKILL)
        has_gone(mps, server)
        assert mps.control._look()
        assert mps.control._look()

    assert [one.partition(" has ended")[0] for one in mps.told] == [f"the mps server {server}"]


def test_of_a_server_that_was_ended_nobody_is_told(mps):
    assert mps.control.open()
    client_of(mps.own).close()
    server = int(mps.ask("get_server_list"))

    mps.ask(f"shutdown_server {server}")
    has_gone(mps, server)
    while f"Server {server} exited" not in (mps.own / "logs" / "said").read_text():
        threading.Event().wait(0.01)
    assert mps.control._look()

    assert mps.told == []


def test_of_a_server_that_ends_well_after_its_clients_nobody_is_told(mps):
    assert mps.control.open()
    with client_of(mps.own):
        server = int(mps.ask("get_server_list"))
        assert mps.control._look()  # now it knows of the client

    pause = threading.Event()
    while mps.ask(f"get_client_list {server}"):
        pause.wait(0.01)
    mps.ask(f"shutdown_server {server}")  # as MPS does for another user, before the next look
    while f"Server {server} exited" not in (mps.own / "logs" / "said").read_text():
        pause.wait(0.01)
    assert mps.control._look()

    assert mps.told == []


def test_what_it_says_is_cut_off_before_it_fills_the_memory(mps, monkeypatch):
    said = mps.own / "logs" / "said"

    def says_of_a_server():
        client_of(mps.own).close()
        while "Starting new server" not in said.read_text():
            threading.Event().wait(0.01)

    assert mps.control.open()
    says_of_a_server()
    assert mps.control._look()
    monkeypatch.setattr("tandemd.edges.mps.MOST_SAID_BYTES", 1)

    assert mps.control._look()
    assert "Starting new server" not in said.read_text()

    server = mps.ask("get_server_list").strip()
    mps.ask(f"shutdown_server {server}")
    has_gone(mps, server)
    says_of_a_server()
    assert "\0" not in said.read_text()


def test_where_no_server_comes_up_it_is_told_once_why(folder):
    mps = Supervised(folder, TANDEM_SOFTGPU_BIN="/nowhere")
    assert mps.control.open()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.settimeout(PATIENCE_S)
        client.connect(str(mps.own / "control"))
        client.send(b"client")
        assert client.recv(512) == b"error 805"

    assert mps.control._look()
    assert mps.control._look()

    (told,) = mps.told
    assert told.startswith("mps cannot start a server (")
    assert told.endswith("): jobs that come to it get cuda's error 805")
    whole = softgpu.environment(folder=folder / "gpu") | mps.control.variables()
    found = _set_probe.probe(whole | control_of(mps.own))
    assert found.problem.endswith(f"cuInit failed with error 805: {_set_probe.NO_SERVER_HINT}")
    assert not found.is_answer
    mps.stop()


@pytest.mark.slow
def test_one_whose_server_hangs_is_left_and_it_is_said_why(mps, monkeypatch):
    monkeypatch.setattr("tandemd.edges.mps_own.ENDS_S", 0.1)
    assert mps.control.open()
    client_of(mps.own).close()
    server = int(mps.ask("get_server_list"))
    assert has_no_clients(mps, server)
    os.kill(server, signal.SIGSTOP)
    monkeypatch.setattr("tandemd.edges.mps.ANSWER_S", 2)

    with capture_logs() as said:
        mps.stop()

    (line,) = said
    assert line["event"] == "leaving mps running"
    assert line["reason"] == (
        f"it was told to end, and did not within 0.1 s: it waits for the server {server}"
    )


@pytest.mark.parametrize("is_heard_of", [True, False])
def test_a_server_that_crashes_soon_after_somebody_came_was_seen(folder, is_heard_of):
    mps = Supervised(folder, look_s=3600)
    assert mps.control.open()
    with client_of(mps.own):
        server = int(mps.ask("get_server_list"))
        mps.watch()
        if is_heard_of:
            mps.control.newcomer()
            pause = threading.Event()
            while not mps.control._servers.clients(server):
                pause.wait(0.01)

        os.kill(server, signal.SIGKILL)
        if is_heard_of:
            assert mps.hears(f"the mps server {server} has ended")
    mps.stop()

    assert bool(mps.told) is is_heard_of


class Clock:
    """The supervision's clock, which the test sets."""

    now_s = 0.0

    def monotonic(self):
        return self.now_s


@pytest.fixture
def looks(mps, monkeypatch):
    """Look every two seconds for so many seconds; return how often the control daemon was asked."""
    monkeypatch.setattr("tandemd.edges.mps.time", clock := Clock())
    said = mps.own / "logs" / "said"

    def look(for_s):
        before = said.read_text().count("Cmd:get_server_list")
        for _ in range(for_s // 2):
            clock.now_s += 2
            assert mps.control._is_quiet() or mps.control._look()
        return said.read_text().count("Cmd:get_server_list") - before

    return look


def test_while_nothing_happens_it_is_asked_ever_more_rarely(mps, looks):
    assert mps.control.open()

    first, later = looks(120), looks(600)

    assert first == 12  # at each of the first seven looks, then after 4, 8, 14, 26 and 52 seconds
    assert later == 10


def test_what_happens_is_seen_without_asking_and_asked_about(mps, looks):
    assert mps.control.open()
    looks(120)
    with client_of(mps.own):
        server = int(mps.ask("get_server_list"))
        assert not mps.control._is_quiet()  # the log says so
        looks(120)
        os.kill(server, signal.SIGKILL)
        while _mps.is_running(server):
            threading.Event().wait(0.01)
        assert not mps.control._is_quiet()
        has_gone(mps, server)
        assert mps.control._look()
    assert [one.partition(" has ended")[0] for one in mps.told] == [f"the mps server {server}"]
    looks(120)

    pid = mps.pid
    os.kill(pid, signal.SIGKILL)
    while _mps.is_running(pid):
        threading.Event().wait(0.01)
    assert not mps.control._is_quiet()


def process_of(user, place):
    """Start a client in its own process, which prints the answer and ends when its input does."""
    program = (
        "import os, socket, sys; os.setuid(int(sys.argv[1]))\n"
        "client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        "client.connect(sys.argv[2]); client.send(b'client')\n"
        "print(client.recv(512).decode(), flush=True); sys.stdin.read()"
    )
    words = [sys.executable, "-c", program, str(user), str(place / "control")]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def waiting_process_of(user, place):
    """Start a client that finds another user's server; wait until it is in line for the next."""
    client, pause = process_of(user, place), threading.Event()
    line = f"NEW CLIENT {client.pid} from user {user}: Server is not ready"
    while line not in (place / "logs" / "said").read_text():
        pause.wait(0.01)
    return client


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's serves several users")
@pytest.mark.parametrize("crashes", [True, False])
def test_a_server_that_ends_for_another_user_has_not_crashed(mps, folder, crashes):
    folder.chmod(0o755)
    assert mps.control.open()
    with contextlib.ExitStack() as clients:
        client = clients.enter_context(process_of(0, mps.own))
        assert client.stdout.readline().startswith("ok ")
        server = int(mps.ask("get_server_list"))
        assert mps.control._look()
        other = clients.enter_context(waiting_process_of(65534, mps.own))
        behind = clients.enter_context(waiting_process_of(0, mps.own))

        os.kill(server if crashes else client.pid, signal.SIGKILL)
        assert other.stdout.readline().startswith(("ok ", "error "))  # from the next server
        assert mps.control._look()
        behind.kill()

    # The other user's server has no device here, so it may cause other messages.
    assert any(f"the mps server {server} has ended" in one for one in mps.told) is crashes


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize(
    ("answer", "named"),
    [
        ("exit 1", []),
        ("echo Server 17 not found", []),
        ("exit 0", [frozenset()]),
        ("echo 23,; echo 42,", [frozenset({23, 42})]),
    ],
)
def test_nobody_is_named_where_the_clients_are_not_answered(
    folder, version, answer, named, monkeypatch
):
    program, place = folder / PROGRAM, folder / "mps"
    says = ":" if answer == "exit 0" else answer.replace(",", "")
    script = f"""#!/bin/sh
        case "$*" in
            "server list"*) {"exit 1" if version == 2 else "echo a,0,17,Ready,/pipes; exit 0"};;
            "client list"*) {answer}; exit 0;;
            "-p 3 -h") {"exit 1" if version == 2 else "echo namespace --apply; exit 0"};;
        esac
        [ {version} = 2 ] || exit 1
        while read -r question; do
            case "$question" in
                get_server_list) echo 17;;
                get_client_list*) {says};;
                get_default_active_thread_percentage) echo 100.0;;
            esac
        done
    """
    program.write_text(script)
    program.chmod(0o755)
    place.mkdir()
    os.mkfifo(place / "control")
    mps = Supervised(folder, PATH=f"{folder}:{os.environ['PATH']}")
    assert mps.control.open()
    heard = []
    mps.control.name_clients = heard.append
    if not named:
        monkeypatch.setattr("tandemd.edges.mps.ANSWER_S", 1)

    assert mps.control._look()

    assert heard == named
    (place / "control").unlink()


def test_without_the_program_there_is_no_mps(folder):
    mps = Supervised(folder, PATH="/nowhere")

    assert not mps.control.open()

    assert mps.control.directory is None
    assert mps.control.variables() == {}


class Pauses(threading.Event):
    """Records the requested waits without waiting, and is set after eight of them."""

    def __init__(self):
        super().__init__()
        self.noted_s = []

    def wait(self, timeout=None):
        self.noted_s.append(timeout)
        if len(self.noted_s) == 8:
            self.set()
        return self.is_set()


def test_whoever_comes_what_does_not_start_is_tried_ever_more_rarely(folder):
    mps = Supervised(folder, look_s=2, PATH="/nowhere")
    assert not mps.control.open()
    mps.control._stopping = pauses = Pauses()
    mps.control.newcomer()

    mps.control.run()

    assert pauses.noted_s == [2, 4, 8, 16, 32, 60, 60, 60]


@pytest.fixture
def newer(folder):
    """A machine whose control program has the new interface, for a daemon that is not root."""
    programs = folder / "bin"
    programs.mkdir()
    program = programs / PROGRAM
    program.write_text(f"#!{sys.executable}\n{(Path(__file__).parent / 'fake_mps.py').read_text()}")
    program.chmod(0o755)
    path = f"{programs}:{os.environ['PATH']}"
    made = Supervised(folder, uid=1000, gpus=("GPU-1", "GPU-2"), PATH=path)
    yield made
    made.stop()
    for row in (made.own / "servers").read_text().splitlines():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(int(row.split(",")[2]), signal.SIGKILL)
    if (made.own / "control").exists():
        os.kill(int((made.own / "pid").read_text()), signal.SIGTERM)
    if made.control._own._child is not None:
        made.control._own._child.wait(PATIENCE_S)


def servers_of(mps):
    return [row.split(",") for row in (mps.own / "servers").read_text().splitlines()]


def test_where_the_control_program_takes_a_file_it_is_started_from_one(newer):
    assert newer.control.open()

    (server,) = servers_of(newer)
    assert (server[0], server[1]) == ("tandem", "1000")
    assert tomllib.loads((newer.own / "mps.toml").read_text()) == {
        "schema_version": "1.0",
        "servers": {"tandem": {"uid": 1000, "allowed_devices": "GPU-1,GPU-2"}},
    }
    assert newer.control.is_own
    assert newer.control.variables() == {PIPES: str(newer.own / "tandem")}


def test_a_named_server_that_crashed_is_made_again_and_jobs_are_told(newer):
    assert newer.control.open()
    pid = int(servers_of(newer)[0][2])
    assert newer.control._look()  # sees that it has a client

    os.killpg(pid, signal.SIGKILL)
    while not newer.told:
        assert newer.control._look()

    assert newer.told[0].startswith(f"the mps server {pid} has ended: jobs that used it")
    assert [row[0] for row in servers_of(newer)] == ["tandem", "tandem"]


def test_a_root_daemon_has_the_interface_that_serves_users_in_turns(folder, newer):
    root = Supervised(folder, uid=0, PATH=newer.environment["PATH"])

    assert not root.control.open()  # this program has only the new interface

    assert not (root.own / "mps.toml").exists()
    (root.own / "servers").touch()


@pytest.mark.parametrize("name", ["file/mps", "n" * 300])
def test_without_a_place_for_its_pipe_there_is_no_mps(folder, newer, name):
    assert newer.control.open()  # the fixture ends what this starts
    (folder / "file").touch()
    mps = Supervised(folder, uid=1000, **newer.environment | {PIPES: str(folder / name)})

    assert not mps.control.open()

    assert mps.control.directory is None
