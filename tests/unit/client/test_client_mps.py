"""What is asked of a control daemon of MPS, and of which."""

import os
from types import SimpleNamespace

import pytest

from tandem import _mps
from tandem._mps import PROGRAM, Control


@pytest.fixture
def control(tmp_path):
    """A control daemon whose program does what the test says."""

    def make(script):
        program = tmp_path / PROGRAM
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        if not (tmp_path / "control").exists():
            os.mkfifo(tmp_path / "control")
        environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
        return Control(tmp_path, environment=environment, timeout_s=20)

    return make


@pytest.mark.parametrize(
    "script",
    [
        r"printf '\377\376 12\n'",  # no UTF-8
        "printf '%05000d' 7",  # more digits than Python takes
        "printf '\u0663'",  # a digit of another script
        r"[ $# = 0 ] && exit 1; printf 'a,\377,7,Ready,/pipes\n'",
        "[ $# = 0 ] && exit 1; printf 'a,%05000d,7,Ready,/pipes' 1",
    ],
)
def test_what_makes_no_sense_is_no_answer(control, script):
    assert control(script).servers() is None


def test_clients_that_make_no_sense_are_not_answered(control):
    asked = control(r"read -r q; [ $q = get_server_list ] && echo 17 && exit; printf '\377\n'")
    (server,) = asked.servers()

    assert asked.clients(server) is None
    assert not asked.is_ending([server])


def test_a_pipe_of_another_user_is_not_spoken_to(control, tmp_path, monkeypatch):
    spoken = tmp_path / "spoken"
    asked = control(f"touch {spoken}; echo 17")
    of_others = os.lstat(tmp_path / "control").st_uid + 1
    theirs, stat = [tmp_path], os.lstat

    def lstat(path):
        found = stat(path)
        if path not in theirs:
            return found
        return os.stat_result([of_others if i == 4 else value for i, value in enumerate(found)])

    monkeypatch.setattr(_mps.os, "lstat", lstat)
    assert asked.servers() is None
    theirs[:] = [tmp_path / "control"]
    assert asked.servers() is None
    assert not spoken.exists()

    theirs.clear()
    assert [server.pid for server in asked.servers()] == [17]


def test_a_link_or_a_file_is_no_pipe(tmp_path):
    os.mkfifo(tmp_path / "elsewhere")
    pipe = tmp_path / "control"
    for make in (pipe.touch, lambda: pipe.symlink_to("elsewhere")):
        make()
        assert not _mps.has_pipe(tmp_path)
        pipe.unlink()


def test_one_that_does_not_answer_is_asked_for_no_longer_than_was_said(control, monkeypatch):
    asked_s = []

    def run(words, *, timeout, **_):
        asked_s.append(timeout)
        clock[0] += timeout
        raise _mps.subprocess.TimeoutExpired(words, timeout)

    asked, clock = control("exit 1"), [100.0]
    monkeypatch.setattr(_mps, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(_mps.subprocess, "run", run)

    assert asked.servers() is None

    assert asked_s == [10, 10]
