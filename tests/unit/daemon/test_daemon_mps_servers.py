"""Which MPS servers crashed, judged by the control daemon's log, its answers, and processes."""

import os
from pathlib import Path

import pytest

from tandem._mps import Server
from tandemd.edges import mps_servers
from tandemd.edges.mps_servers import Servers

A, B = 1000, 1001  # users
ONE, TWO = 2**22 + 7, 2**22 + 8  # servers, with pids above all real ones
GONE = 2**22 + 9
HERE, THERE = os.getpid(), os.getppid()  # clients that live
STAMP = "[2026-05-31 23:48:21.671 Control 11107] "
REASON = (
    "[2026-05-31 23:48:21.900 Server {0}] Failed to start : no device\n"
    f"{STAMP}Server {{0}} exited with status 1\n"
)


def said(*lines):
    return "".join(f"{STAMP}{line}\n" for line in lines)


def comes(client, user, *, waits):
    how = "is not ready, push client to pending list" if waits else "already exists"
    return f"NEW CLIENT {client} from user {user}: Server {how}"


def up(server=ONE, user=A, client=HERE):
    """Log lines of a server that has one client."""
    return said(
        comes(client, user, waits=True),
        f"Starting new server {server} for user {user}",
        f"NEW SERVER {server}: Ready",
    )


TOLD = said(f"Cmd:shutdown_server {ONE}")
ENDED = said(f"Server {ONE} exited with status 0")
WAITS = said(comes(THERE, B, waits=True))
NEXT = said(f"Starting new server {TWO} for user {B}", f"NEW SERVER {TWO}: Ready")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "control.log"
    path.write_text(up(GONE) + "long ago\n")
    return path


@pytest.fixture
def servers(file, monkeypatch):
    """Servers, none of which ends before the log says so."""
    running = {ONE, TWO}
    monkeypatch.setattr(mps_servers, "is_running", running.__contains__)
    made = Servers([file])
    made.running = running
    return made


def add(file, text):
    with file.open("a") as log:
        log.write(text)


def test_one_that_nobody_asked_about_is_told_once(file, servers):
    assert not servers.look()
    add(file, up() + ENDED)

    assert servers.look()
    assert servers.crashed() == [ONE]
    assert not servers.look()
    assert servers.crashed() == []


def test_one_that_nobody_has_used_is_not(file, servers):
    add(file, said(f"Starting new server {ONE} for user {A}", f"NEW SERVER {ONE}: Ready") + ENDED)
    servers.look()

    assert servers.crashed() == []


@pytest.mark.parametrize("looks", [1, 2, 3], ids=["later", "between", "always"])
@pytest.mark.parametrize(
    ("lives", "before", "after", "crashed"),
    [
        (True, "", "", True),
        (True, "", WAITS + NEXT, True),  # came too late to be why it ended
        (True, WAITS, NEXT, True),
        (False, WAITS, NEXT, False),  # ends for the other's sake, as a server without clients does
        (True, TOLD, "", False),
        (False, TOLD, "", False),
    ],
)
def test_status_0_tells_nothing_and_who_was_there_does(
    file, servers, looks, lives, before, after, crashed
):
    """The result is the same however much of it is read at once."""
    parts = [up(client=HERE if lives else GONE) + before, ENDED, after]
    if looks < 3:
        parts[:2] = ["".join(parts[:2])]
    if looks < 2:
        parts = ["".join(parts)]

    found = []
    for part in parts:
        add(file, part)
        servers.look()
        found += servers.crashed()

    assert found == [ONE] * crashed


@pytest.mark.parametrize("then", ["", WAITS + NEXT])
def test_one_whose_clients_died_with_it_has_crashed_where_nobody_else_waited(file, servers, then):
    add(file, up(client=GONE) + ENDED + then)  # over before it was first looked at

    servers.look()

    assert servers.crashed() == [ONE]


def test_a_client_that_has_gone_before_is_none(file, servers):
    add(file, up(client=GONE))
    servers.look()

    add(file, ENDED)
    servers.look()

    assert servers.crashed() == []


def test_one_that_waits_for_its_turn_was_no_client_of_what_ended_for_another(file, servers):
    add(file, up(client=GONE) + WAITS + said(comes(HERE, A, waits=True)) + ENDED + NEXT)

    servers.look()

    assert servers.crashed() == []
    assert servers.clients(TWO) == {THERE}
    assert servers.are_contended


def test_who_comes_to_a_server_that_is_up_is_its_client(file, servers):
    add(file, up(client=GONE) + said(comes(HERE, A, waits=False)))

    servers.look()

    assert servers.clients(ONE) == {HERE}
    assert not servers.are_contended


def answered(*clients, uid=A, pid=ONE):
    return [Server(pid=pid, pipes=Path("/"), uid=uid)], {pid: list(clients)}


def test_without_a_log_answers_and_processes_tell(servers):
    assert servers.take(*answered(HERE))
    assert not servers.take(*answered(HERE))
    assert not servers.look()

    servers.running.remove(ONE)
    assert servers.look()

    assert servers.crashed() == []  # it was listed a moment ago
    servers.take([], {})
    assert servers.crashed() == [ONE]


@pytest.mark.parametrize("lives", [True, False])
def test_without_a_log_another_users_server_may_be_why_one_has_ended(servers, lives):
    servers.take(*answered(HERE if lives else GONE))
    servers.running.remove(ONE)

    servers.take(*answered(THERE, uid=B, pid=TWO))

    assert servers.crashed() == [ONE] * lives


def test_what_is_not_answered_stays_as_it_was(servers):
    servers.take(*answered(HERE))
    ours, _ = answered()

    assert not servers.take(ours, {ONE: None})

    assert servers.clients(ONE) == {HERE}


def test_one_that_never_came_up_has_not_crashed_and_it_is_said_why(file, servers):
    start = said(comes(HERE, A, waits=True), f"Starting new server {ONE} for user {A}")
    add(file, start + REASON.format(ONE))
    servers.look()
    assert servers.crashed() == []
    assert servers.why_not == "no device"

    servers.why_not = ""
    add(file, start + REASON.format(ONE) + up(TWO))
    servers.look()
    assert servers.why_not == ""


def test_half_a_line_is_read_when_it_is_whole(file, servers):
    text = up()
    add(file, text[:-20])
    servers.look()
    assert servers.clients(ONE) == frozenset()

    add(file, text[-20:])
    servers.look()

    assert servers.clients(ONE) == {HERE}


def test_a_log_that_is_begun_anew_or_comes_later_is_read_from_its_beginning(file, tmp_path):
    later = tmp_path / "later"
    servers = Servers([file, later])

    file.write_text(up())
    later.write_text(up(TWO, B))
    servers.look()

    assert servers.crashed() == [ONE, TWO]


def test_whether_there_is_a_log_for_us_is_known(file, tmp_path):
    assert Servers([tmp_path / "missing", file]).are_logged
    assert not Servers([tmp_path / "missing"]).are_logged
