"""tandemd-helper as a program: started by its socket or by hand, and its units."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from mps.record import end_daemons

from tandem import _doctor, _helper, softgpu
from tandem._mps import PIPES as MPS_PIPES
from tandemd.edges.helper import Helper
from tandemd.helper.unit import TEMPLATES, render

PATIENCE_S = 60
PACKAGING = Path(__file__).parents[3] / "packaging"
PROGRAM = Path("/usr/bin/tandemd-helper")
# Starts it as systemd does, with its socket as descriptor 3. It checks very soon whether it is
# idle, and prints a line at each check.
STARTED = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": sys.argv[2]}
from tandemd import hold_signals
import tandemd.helper.__main__ as helper
hold_signals()
helper.LOOK_S, helper.IDLE_S = 0.01, float(sys.argv[3])
look = helper.RootMps.look
helper.RootMps.look = lambda mps: (print(flush=True), look(mps))[1]
helper.main(["--user", sys.argv[4]])
"""


@pytest.fixture
def listener(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as made:
        made.bind(str(tmp_path / "s"))
        made.listen()
        made.settimeout(PATIENCE_S)
        yield made


def started(listener, *, sockets="1", idle_s=0.0, user="", env=None):
    words = [sys.executable, "-c", STARTED, str(listener.fileno()), sockets, str(idle_s)]
    words.append(user or str(os.geteuid()))
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(words, pass_fds=[listener.fileno()], cwd="/", env=env, **pipes)


@contextmanager
def asking(path, message):
    """A client that sends its request before the helper starts, and waits in line."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(PATIENCE_S)
        connection.connect(str(path))
        connection.send(message)
        yield connection


def ended(process):
    said = process.communicate(timeout=PATIENCE_S)[1]
    return process.returncode, said


def test_it_answers_who_asked_before_it_was_there_and_ends_when_nobody_asks(listener, tmp_path):
    with asking(tmp_path / "s", b'{"verb":"hello"}') as early:
        process = started(listener)

        answer = json.loads(early.recv(_helper.MOST_BYTES))

    assert answer["version"]
    code, said = ended(process)
    assert (code, "stopped: there were no requests" in said) == (0, True), said
    assert re.search(r"event=done.* verb=hello", said)
    listener.settimeout(0)  # it is still there for the next helper


def test_it_stays_while_it_is_asked_and_ends_by_a_signal(listener, tmp_path):
    process = started(listener, idle_s=3600)
    for _ in range(2):
        assert _helper.exchange(tmp_path / "s", b'{"verb":"hello"}', timeout_s=PATIENCE_S)

    process.send_signal(signal.SIGTERM)

    assert ended(process)[0] == 0


@pytest.fixture
def place():
    made = Path(tempfile.mkdtemp(prefix="helper-"))  # pytest's are too long for MPS
    yield made
    end_daemons(made)
    shutil.rmtree(made, ignore_errors=True)


def test_it_stays_while_mps_that_it_has_started_runs(place, tmp_path):
    environment = softgpu.environment(folder=tmp_path, base=os.environ | {MPS_PIPES: ""})
    ask = partial(_helper.exchange, place / "s", timeout_s=PATIENCE_S)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(place / "s"))
        listener.listen()
        with asking(place / "s", b'{"verb":"start-mps","gpus":[]}') as early:
            process = started(listener, env=environment)
            told = json.loads(early.recv(_helper.MOST_BYTES))
        os.read(process.stdout.fileno(), 1 << 16)  # discards the lines of earlier checks
        assert [process.stdout.readline() for _ in range(3)] == ["\n"] * 3
        assert "version" in json.loads(ask(b'{"verb":"hello"}'))

        assert json.loads(ask(b'{"verb":"end-mps"}')) == {}
        code, said = ended(process)

    assert told == {"pipes": str(place / "mps")}
    assert (code, "stopped: there were no requests" in said) == (0, True), said


@pytest.mark.parametrize(
    ("sockets", "user", "why"),
    [
        ("2", "0", "systemd gives 2 sockets, and it takes one"),
        ("1", "nobody-is-called-so", "there is no user 'nobody-is-called-so'"),
    ],
)
def test_what_it_cannot_be_started_with_is_an_error(listener, sockets, user, why):
    code, said = ended(started(listener, sockets=sockets, user=user))

    assert code == 2
    assert f"error: {'' if sockets == '2' else '--user: '}{why}" in said


def test_a_socket_of_another_kind_is_refused(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream:
        stream.bind(str(tmp_path / "s"))
        stream.listen()

        assert "another socket than ListenSequentialPacket=" in ended(started(stream))[1]


def by_hand(*words):
    return subprocess.Popen(
        [sys.executable, "-m", "tandemd.helper", *words],
        stderr=subprocess.PIPE,
        text=True,
        cwd="/",
    )


def test_by_hand_it_makes_a_socket_for_its_user_alone_and_doctor_hears_it(tmp_path, monkeypatch):
    path = tmp_path / "s"
    process = by_hand("--user", str(os.geteuid()), "--socket", str(path))
    assert "event=ready" in process.stderr.readline()
    monkeypatch.setenv(_helper.VARIABLE, str(path))

    (found,) = _doctor.check_helper(_doctor._machine())

    assert path.stat().st_mode & 0o777 == 0o600
    assert Helper(path).is_there
    assert (found.level, "answers on" in found.text) == (_doctor.OK, True), found
    code, said = ended(by_hand("--user", str(os.geteuid()), "--socket", str(path)))
    assert (code, "Address already in use" in said) == (2, True), said
    assert Helper(path).is_there, "it keeps its socket"
    process.send_signal(signal.SIGTERM)
    assert ended(process)[0] == 0
    again = by_hand("--user", str(os.geteuid()), "--socket", str(path))  # stale socket
    assert "event=ready" in again.stderr.readline()
    again.kill()
    again.communicate(timeout=PATIENCE_S)


def test_without_a_socket_it_says_how_to_start_it():
    code, said = ended(by_hand("--user", str(os.geteuid())))

    assert code == 2
    assert "start tandemd-helper.socket, or say --socket PATH" in said


@pytest.mark.parametrize("kind", TEMPLATES)
def test_the_packaged_units_are_what_the_program_prints(kind):
    assert (PACKAGING / f"tandemd-helper.{kind}").read_text() == render(kind, PROGRAM)


def test_the_socket_is_where_the_daemon_looks_and_the_programs_directory_is_the_same():
    keys = dict(re.findall(r"^(\w+)=(.*)$", render("socket", PROGRAM), re.MULTILINE))

    assert keys["ListenSequentialPacket"] == str(_helper.SOCKET)
    assert (keys["SocketMode"], keys["SocketUser"]) == ("0600", "tandem")
    assert f"ExecStart={PROGRAM} --user tandem\n" in render("service", PROGRAM)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
def test_systemd_accepts_the_units(tmp_path):
    units = []
    for kind in TEMPLATES:
        units.append(tmp_path / f"tandemd-helper.{kind}")
        units[-1].write_text(render(kind, Path(shutil.which("true"))))

    answer = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *map(str, units)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )

    assert (answer.returncode, answer.stderr) == (0, "")
