"""The questions put to an MPS control daemon, and to which one."""

import os
from types import SimpleNamespace

import pytest

from tandem import _mps
from tandem._mps import PROGRAM, Control

LAST = "echo 100.0"  # answers the last question of each session
USAGE = "echo namespace --apply"


@pytest.fixture
def control(tmp_path):
    """A control daemon whose program runs this script."""

    def make(script, timeout_s=20):
        program = tmp_path / PROGRAM
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        if not (tmp_path / "control").exists():
            os.mkfifo(tmp_path / "control")
        environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
        return Control(tmp_path, environment=environment, timeout_s=timeout_s)

    return make


@pytest.mark.parametrize(
    "answer",
    [
        r"printf '\377\376 12\n'",  # not UTF-8
        r"printf '%05000d\n' 7",  # more digits than Python converts
        "echo '\u0663'",  # a non-ASCII digit
    ],
)
def test_what_makes_no_sense_is_no_answer(control, answer):
    assert control(f"{answer}; {LAST}").servers() is None


@pytest.mark.parametrize(
    "row",
    [r"printf 'a,\377,7,Ready,/pipes\n'", "printf 'a,%05000d,7,Ready,/pipes' 1"],
)
def test_a_row_of_the_new_interface_that_makes_no_sense_is_no_answer(control, row):
    new = f"case $1 in -p) {USAGE};; server) {row};; *) exit 1;; esac"

    assert control(new, timeout_s=0.5).servers() is None


def test_clients_that_make_no_sense_are_not_answered(control):
    asked = control(rf"read -r q; [ $q = get_server_list ] && echo 17 || printf '\377\n'; {LAST}")
    (server,) = asked.servers()

    assert asked.clients(server) is None


def test_no_words_and_code_0_are_no_answer_and_it_is_asked_again(control, tmp_path):
    # It answers like this while somebody else has a session.
    busy = f"mkdir {tmp_path}/asked 2>/dev/null && exit 0"
    asked = control(f"[ $# = 0 ] || exit 1; {busy}; echo 17; {LAST}")

    assert [server.pid for server in asked.servers()] == [17]
    assert control("exit 0", timeout_s=0.2).servers() is None


@pytest.mark.parametrize(("pid", "pids"), [(4711, [17]), (None, None)])
def test_one_that_runs_is_asked_again_where_it_was_not_found(
    control, tmp_path, monkeypatch, pid, pids
):
    monkeypatch.setattr(_mps, "control_pid", lambda place: pid if place == tmp_path else None)
    missing = "echo Cannot find MPS control daemon process >&2; exit 1"
    first = f"mkdir {tmp_path}/asked 2>/dev/null && {{ {missing}; }}"
    asked = control(f"[ $# = 0 ] || exit 1; {first}; echo 17; {LAST}")

    servers = asked.servers()

    assert (servers and [server.pid for server in servers]) == pids


@pytest.mark.parametrize(("usage", "pids"), [("exit 0", None), (USAGE, [7])])
def test_the_new_interface_is_asked_only_of_a_program_that_names_it(control, usage, pids):
    new = f"case $1 in -p) {usage};; server) echo a,0,7,Ready,/pipes;; *) exit 0;; esac"

    servers = control(new, timeout_s=20 if pids else 0.2).servers()

    assert (servers and [server.pid for server in servers]) == pids


def test_a_pipe_of_another_user_is_not_spoken_to(control, tmp_path, monkeypatch):
    spoken = tmp_path / "spoken"
    asked = control(f"touch {spoken}; echo 17; {LAST}")
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

    def sleep(pause_s):
        clock[0] += pause_s

    asked, clock = control("exit 1"), [100.0]
    monkeypatch.setattr(_mps, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=sleep))
    monkeypatch.setattr(_mps.subprocess, "run", run)

    assert asked.servers() is None

    assert asked_s == [10, 5, 5]
