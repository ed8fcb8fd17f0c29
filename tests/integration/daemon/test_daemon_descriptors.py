"""Clients that connect endlessly take nothing from those that come later."""

import contextlib
import errno
import math
import os
import resource
import socket
from dataclasses import replace
from types import SimpleNamespace

import pytest
from fake_shim import PATIENCE_S, register
from running_daemon import Rpc, until

from tandem import CapacityError, Client, UnavailableError
from tandemd.daemon import Daemon
from tandemd.edges import attach
from tandemd.edges.attach import HELLO_WITHIN_S, AttachServer, Gone
from tandemd.edges.login import LoginServer


def descriptors(daemon):
    return len(os.listdir(f"/proc/{daemon.process.pid}/fd"))


def admitted(connect):
    """Connect until it succeeds: a caller in line behind others may be turned away with them."""
    while True:
        with contextlib.suppress(ConnectionError):
            return connect()


@pytest.mark.parametrize("more", [0, 1], ids=["even", "odd"])  # the last is a socket's or a pidfd
@pytest.mark.parametrize("name", ["attach.sock", "login.sock"])
def test_a_daemon_without_descriptors_goes_on_once_it_has_some_again(daemon, name, more):
    honest = daemon.start().shim(name="honest")
    with daemon.rpc() as rpc:
        assert [job.display_name for job in rpc.jobs()] == ["honest"]
    before = descriptors(daemon)
    most = before + 40 + more
    resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, (most, most))

    kind = socket.SOCK_SEQPACKET if name == "attach.sock" else socket.SOCK_STREAM
    idle = [socket.socket(socket.AF_UNIX, kind) for _ in range(100)]
    for connection in idle:
        connection.connect(str(daemon.runtime / name))
    until(
        lambda: "turning new connections away" in daemon.log.read_text(), what="there are no more"
    )
    for connection in idle:
        connection.close()
    until(lambda: descriptors(daemon) <= before + 4, what="they are forgotten")

    later = admitted(lambda: daemon.shim(name="later"))
    honest.close()
    with admitted(lambda: Rpc(daemon.runtime)) as rpc:
        until(
            lambda: [job.display_name for job in rpc.jobs()] == ["later"],
            what="the end of the first is noticed",
        )
    assert later.process_id
    assert len(daemon.log.read_text().splitlines()) < 100


@pytest.fixture
def server(tmp_path):
    now_s, delivered = [0.0], []
    server = AttachServer(tmp_path / "a", deliver=delivered.append, now_s=lambda: now_s[0])
    server.path, server.time_s, server.delivered = tmp_path / "a", now_s, delivered
    yield server
    server.close()


def connected(server):
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(PATIENCE_S)
    connection.connect(str(server.path))
    server.poll(timeout_s=0)
    return connection


def test_who_never_says_hello_is_not_kept(server):
    with connected(server) as silent:
        server.time_s[0] += HELLO_WITHIN_S / 2
        with connected(server) as second:
            server.time_s[0] += HELLO_WITHIN_S / 2
            server.poll(timeout_s=0)

            assert silent.recv(1) == b""
            second.settimeout(0)
            with pytest.raises(BlockingIOError):
                second.recv(1)
    assert server.delivered == []


def test_users_share_descriptors_and_leave_some_to_root(tmp_path, monkeypatch):
    uids = {}
    peer_of = attach.peer_of

    def peer_as_told(accepted):
        return replace(peer_of(accepted), uid=uids[accepted.getpeername()])

    monkeypatch.setattr(attach, "peer_of", peer_as_told)
    monkeypatch.setattr(os, "geteuid", lambda: 5)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (28, 28))  # room for 4 processes of users
    with contextlib.ExitStack() as open_ones:
        server = AttachServer(tmp_path / "a", deliver=lambda _: None)
        open_ones.callback(server.close)

        def refusal_of(uid):
            newcomer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            open_ones.callback(newcomer.close)
            newcomer.bind("")  # the kernel picks a name
            uids[newcomer.getsockname()] = uid
            newcomer.connect(str(tmp_path / "a"))
            server.poll(timeout_s=0)
            newcomer.settimeout(0)
            try:
                return newcomer.recv(4096).decode(errors="replace")
            except BlockingIOError:
                return ""

        limit = "of the 28 files that tandemd may open (LimitNOFILE=)"
        assert [refusal_of(7), refusal_of(7)] == ["", ""]
        assert f"uid 7 has 2 processes attached, its share {limit}" in refusal_of(7)
        assert [refusal_of(8), refusal_of(8)] == ["", ""]
        assert f"users have 4 processes attached, their share {limit}" in refusal_of(9)
        assert [refusal_of(0), refusal_of(5)] == ["", ""]


def test_a_launcher_that_hung_up_costs_no_socket_and_is_known_by_its_process(server):
    with connected(server) as launcher:
        launcher.send(register())
        server.poll(timeout_s=0)
        (received,) = server.delivered
        assert received.connection.socket.fileno() >= 0
    server.poll(timeout_s=0)

    assert received.connection.socket.fileno() == -1
    assert received.connection.is_there()
    assert not any(isinstance(message, Gone) for message in server.delivered)


def test_a_process_without_a_pidfd_for_want_of_descriptors_is_sent_off(server, monkeypatch):
    def none_left(_):
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(attach, "open_pidfd", none_left)
    with connected(server) as newcomer:
        assert newcomer.recv(1) == b""


def test_a_login_that_cannot_be_watched_is_sent_off_and_the_next_one_is_served(tmp_path):
    login = LoginServer(tmp_path / "l")
    register, refused = login._selector.register, []

    def refuse_once(source, events, data=None):
        if isinstance(data, str) and not refused:
            refused.append(data)
            raise OSError(errno.ENOSPC, "No space left on device")
        return register(source, events, data)

    login._selector.register = refuse_once

    def connected():
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(PATIENCE_S)
        connection.connect(str(tmp_path / "l"))
        login._accept()
        return connection

    with connected() as first:
        assert first.recv(256) == b""
    assert (login._tokens, login._per_uid.total()) == ({}, 0)
    login._door._now_s = lambda: math.inf  # so the door opens again
    login._door.wait_s(None)
    with connected() as second:
        assert login.peer_for(second.recv(256).decode().strip()).uid == os.getuid()
    login.close()


@pytest.mark.parametrize(("name", "ends"), [("attach", True), ("login", True), ("audit", False)])
def test_the_end_of_a_thread_that_hears_who_comes_is_the_daemons(name, ends):
    daemon = SimpleNamespace(failure=None, _threads=[], _core=SimpleNamespace(is_alive=lambda: 1))

    def die():
        raise OSError(24, "Too many open files")

    Daemon._spawn(daemon, name, die)
    daemon._threads[0].join()

    assert Daemon.is_alive(daemon) is not ends


def test_who_holds_all_connections_of_his_is_told_so_by_the_client(daemon):
    daemon.start()
    with contextlib.ExitStack() as held:

        def is_let_in():
            connection = held.enter_context(socket.socket(socket.AF_UNIX))
            connection.settimeout(PATIENCE_S)
            connection.connect(str(daemon.runtime / "tandemd.sock"))
            with contextlib.suppress(ConnectionResetError):
                return bool(connection.recv(1))  # gRPC's greeting
            return False

        while is_let_in():
            pass
        client = held.enter_context(Client(directory=str(daemon.runtime)))

        with pytest.raises(CapacityError, match=r"connections to tandemd\.sock") as told:
            client.jobs()

    assert told.value.reason == "TOO_MANY_CLIENTS"
    with Client(directory=str(daemon.runtime)) as client:
        until(lambda: can_ask(client), what="the connections are forgotten")


def can_ask(client):
    with contextlib.suppress(CapacityError, UnavailableError):
        return client.jobs() == []
