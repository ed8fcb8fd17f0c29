"""Each user gets a part of the connections to the RPC socket, however many others hold."""

import asyncio
import errno
import os
import resource
import socket
import threading
from contextlib import ExitStack, closing, suppress
from types import SimpleNamespace

import pytest

from tandem._login import Login
from tandem.errors import CapacityError
from tandemd.edges import front, login
from tandemd.edges.front import Front
from tandemd.edges.login import LoginServer
from tandemd.edges.rpc import RpcServer

PATIENCE_S = 20.0
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # RFC 9113, 3.4


@pytest.fixture
def connect(tmp_path, monkeypatch):
    """Connects to a server as a uid, and sends the HTTP/2 greeting."""
    uids = {}  # by client socket name: the kernel knows only one uid here

    def peer_of(accepted):
        return SimpleNamespace(uid=uids[accepted.getpeername()])

    monkeypatch.setattr(front, "peer_of", peer_of)
    server = RpcServer(
        tmp_path / "rpc.sock", desk=None, peer_for=lambda _: None, is_ready=lambda: True
    )
    server.start()
    with ExitStack() as open_ones:
        open_ones.callback(server.stop)

        def connect(uid):
            found = open_ones.enter_context(closing(socket.socket(socket.AF_UNIX)))
            found.settimeout(PATIENCE_S)
            found.bind("")  # the kernel picks a name
            uids[found.getsockname()] = uid
            found.connect(str(tmp_path / "rpc.sock"))
            with suppress(OSError):  # the server hung up already
                found.sendall(GREETING)
            return found

        connect.server = server
        yield connect


def is_let_in(connection):
    with suppress(ConnectionResetError):
        return bool(connection.recv(1))
    return False


def is_hung_up_on(connection):
    with suppress(ConnectionResetError):
        while connection.recv(4096):
            pass
    return True  # a timeout instead would raise an error


def limit(connect, *, most, most_of_a_uid):
    connect.server._front._most = most
    connect.server._front._most_of_a_uid = most_of_a_uid


def test_one_user_has_so_many_connections_and_others_come_in(connect):
    limit(connect, most=100, most_of_a_uid=2)
    held = [connect(7) for _ in range(2)]
    assert all(map(is_let_in, held))

    assert is_hung_up_on(connect(7))

    assert is_let_in(connect(0))
    assert connect.server.refusal(7) == (
        "uid 7 has 2 connections to tandemd.sock, the most that a user may have; close some"
    )
    assert connect.server.refusal(8) == ""
    held[0].close()
    while not is_let_in(connect(7)):
        pass


def test_who_has_most_gives_way_once_all_places_are_taken(connect):
    limit(connect, most=4, most_of_a_uid=3)
    of_7, of_8 = [connect(7) for _ in range(3)], connect(8)
    assert all(map(is_let_in, [*of_7, of_8]))

    assert is_let_in(connect(9))

    assert is_hung_up_on(of_7[-1])
    assert is_hung_up_on(connect(8))  # it would hold as many as 7
    for kept in [*of_7[:-1], of_8]:
        kept.setblocking(False)
        with suppress(BlockingIOError):  # everything sent so far is read
            while kept.recv(4096):
                pass
            pytest.fail("it was hung up on")


@pytest.mark.parametrize(("descriptors", "most"), [(64, 5), (1 << 20, 1024)])
def test_connections_leave_descriptors_to_jobs(tmp_path, monkeypatch, descriptors, most):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (descriptors, descriptors))

    async def made():
        made = Front(tmp_path / "f", behind=tmp_path / "b")
        await made.leave()
        return made

    made = asyncio.run(made())

    assert made._most == most
    assert made._most_of_a_uid == min(256, most // 2)


def test_all_that_is_said_arrives_however_slowly_it_is_read(tmp_path):
    said = os.urandom(1 << 20) * 4
    with socket.socket(socket.AF_UNIX) as behind:
        behind.bind(str(tmp_path / "b"))
        behind.listen()

        def serve():
            with behind.accept()[0] as end, end.makefile("rb") as heard:
                end.sendall(heard.read(1 << 20) * 4)

        thread = threading.Thread(target=serve)
        thread.start()

        async def carried():
            listening = Front(tmp_path / "f", behind=tmp_path / "b")
            try:
                return await asyncio.to_thread(exchanged)
            finally:
                await listening.leave()

        def exchanged():
            with socket.socket(socket.AF_UNIX) as asking:
                asking.settimeout(PATIENCE_S)
                asking.connect(str(tmp_path / "f"))
                asking.sendall(said[: 1 << 20])
                with asking.makefile("rb") as heard:
                    return heard.read()

        assert asyncio.run(carried()) == said
        thread.join()


def test_no_more_is_taken_from_one_side_than_the_other_reads():
    async def paused():
        ends, calls = [front._End(), front._End()], []
        for name, end in zip("ab", ends, strict=True):
            end.connection_made(
                SimpleNamespace(
                    pause_reading=lambda name=name: calls.append(f"{name} pauses"),
                    resume_reading=lambda name=name: calls.append(f"{name} goes on"),
                )
            )
        ends[0].join(ends[1])
        ends[1].join(ends[0])
        calls.clear()
        ends[0].pause_writing()
        ends[0].resume_writing()
        return calls

    assert asyncio.run(paused()) == ["b pauses", "b goes on"]


def test_without_descriptors_who_comes_is_sent_off_and_the_next_one_is_served(connect, monkeypatch):
    relay, failures = front._relay, [OSError(errno.EMFILE, "Too many open files")]

    async def fail_once(*arguments):
        if failures:
            raise failures.pop()
        await relay(*arguments)

    monkeypatch.setattr(front, "_relay", fail_once)

    assert is_hung_up_on(connect(7))
    while not is_let_in(connect(7)):
        pass


@pytest.fixture
def logins(tmp_path):
    server = LoginServer(tmp_path / "l")
    thread = threading.Thread(target=server.run)
    thread.start()
    yield server
    server.stop()
    thread.join()
    server.close()


def test_who_may_log_in_no_more_is_told_which_limit_that_is(logins, tmp_path, monkeypatch):
    monkeypatch.setattr(login, "MAX_LOGINS_PER_UID", 1)
    first = Login(tmp_path / "l", timeout_s=PATIENCE_S)

    with pytest.raises(CapacityError, match=rf"uid {os.getuid()} has 1 clients logged in") as told:
        Login(tmp_path / "l", timeout_s=PATIENCE_S)

    assert told.value.reason == "TOO_MANY_CLIENTS"
    first.close()


def test_who_may_not_connect_is_told_that_at_the_login(logins, tmp_path):
    logins.also_refused = lambda uid: f"uid {uid} has enough"

    with pytest.raises(CapacityError, match=f"uid {os.getuid()} has enough"):
        Login(tmp_path / "l", timeout_s=PATIENCE_S)
