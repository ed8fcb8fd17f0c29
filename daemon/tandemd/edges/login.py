"""The login socket: a client that connects gets a token for the RPC socket, bound to its uid.

gRPC does not tell a server which user calls over a unix socket; on a socket of our own the kernel
does. The token is 64 hexadecimal digits and a newline, and becomes void when its connection closes.
A client that gets none is told why, in a line that begins with `refused: `. Nothing that the client
sends is used; only the hang-up counts. Runs in a thread of its own.
"""

from __future__ import annotations

import os
import secrets
import selectors
import socket
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import structlog

from tandemd.edges.door import Door
from tandemd.edges.peers import Peer, peer_of
from tandemd.edges.seldom import Seldom

MAX_LOGINS_PER_UID = 256
BACKLOG = 4096  # as on the attach socket
NEWCOMER = object()  # selector data of the listening socket

log = structlog.get_logger(__name__)


class LoginServer:
    """Listens on the login socket. `peer_for` may be called from any thread.

    `also_refused` returns why a token would be useless to a uid, or "".
    """

    def __init__(self, path: Path) -> None:
        """Bind the socket, mode 0666, replacing a stale one."""
        self.also_refused: Callable[[int], str] = lambda _uid: ""
        self._tokens: dict[str, Peer] = {}
        self._per_uid: Counter[int] = Counter()
        self._seldom = Seldom()
        self._selector = selectors.DefaultSelector()
        self._door = Door(
            path, kind=socket.SOCK_STREAM, backlog=BACKLOG, selector=self._selector, data=NEWCOMER
        )
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector.register(self._wake_fd, selectors.EVENT_READ, None)
        self._stopping = False

    def peer_for(self, token: str) -> Peer | None:
        """Return who holds the token; None once it is void."""
        return self._tokens.get(token)

    def run(self) -> None:
        """Serve until `stop` is called."""
        while not self._stopping:
            for key, _ in self._selector.select(self._door.wait_s(None)):
                if key.data is NEWCOMER:
                    self._accept()
                elif isinstance(key.fileobj, socket.socket):
                    self._hear(key.fileobj, key.data)

    def stop(self) -> None:
        """End `run`. Any thread."""
        self._stopping = True
        os.eventfd_write(self._wake_fd, 1)

    def close(self) -> None:
        """Void all tokens, after `run` has returned."""
        self._tokens.clear()
        self._door.close()
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self._selector.close()
        os.close(self._wake_fd)

    def _accept(self) -> None:
        for connection in self._door.newcomers():
            try:
                self._admit(connection)
            except OSError as error:  # it cannot be watched: treat it as not accepted
                connection.close()
                self._door.turn_away(error)

    def _admit(self, connection: socket.socket) -> None:
        peer = peer_of(connection)
        if reason := self._refusal(peer.uid) or self.also_refused(peer.uid):
            if self._seldom.is_time(peer.uid):
                log.warning("refusing a login", uid=peer.uid, reason=reason)
            with suppress(OSError), connection:
                connection.send(f"refused: {reason}\n".encode(), socket.MSG_NOSIGNAL)
            return
        token = secrets.token_hex(32)
        self._selector.register(connection, selectors.EVENT_READ, token)
        self._tokens[token] = peer
        self._per_uid[peer.uid] += 1
        try:
            connection.send(f"{token}\n".encode(), socket.MSG_NOSIGNAL)
        except OSError:
            self._void(connection, token)

    def _refusal(self, uid: int) -> str:
        if self._per_uid[uid] < MAX_LOGINS_PER_UID:
            return ""
        return (
            f"uid {uid} has {MAX_LOGINS_PER_UID} clients logged in, the most that a user may have; "
            "close some, or let threads share one"
        )

    def _hear(self, connection: socket.socket, token: str) -> None:
        try:
            heard = connection.recv(256)
        except BlockingIOError:
            return
        except OSError:
            heard = b""
        if not heard:  # anything sent is ignored; only the hang-up counts
            self._void(connection, token)

    def _void(self, connection: socket.socket, token: str) -> None:
        peer = self._tokens.pop(token)
        self._per_uid[peer.uid] -= 1
        self._selector.unregister(connection)
        connection.close()
