"""The attach socket: connections of shims and of `tandem run`, as packets in and packets out.

One thread calls `poll` (or `run`, which does nothing else); only this thread accepts, reads and
closes. Any thread may call `send` and `hang_up`. What arrives is delivered as messages. Packets are
checked and decoded here, and identity comes from the kernel. No hang-up is missed, because each
connection is watched together with the process that made it: children may hold copies of its
socket.
"""

from __future__ import annotations

import array
import contextlib
import os
import resource
import selectors
import socket
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import structlog

from tandem import _native
from tandemd.edges.door import Door
from tandemd.edges.peers import Peer, Pidfd, open_pidfd, peer_of, start_time
from tandemd.edges.seldom import Seldom

MAX_PACKET_BYTES = 4096  # wire::kMaxMessageBytes
BACKLOG = 4096
FALLBACK_LOOK_S = 1.0  # how often processes without a pidfd are checked
DESCRIPTORS_PER_PROCESS = 5  # its socket, its pidfd and three pages
HELLO_WITHIN_S = 10.0  # a silent connection is closed after that, because it costs two descriptors

REFUSED_PROTOCOL, REFUSED_MALFORMED, REFUSED_IDENTITY, REFUSED_NO_ROOM = 1, 2, 3, 4
REFUSED_UNKNOWN_JOB, REFUSED_SHUTTING_DOWN, REFUSED_UNFIT = 5, 6, 7
REFUSED_NOT_YET = 8

NOT_SEEN = (
    "it does not see this process, because it runs in a PID namespace of its own; it needs "
    "that of the host (Kubernetes: hostPID: true; docker: --pid=host)"
)

log = structlog.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class Connection:
    """One connected process. Fields other than `number` and `peer` belong to the polling thread.

    `pidfd` and `started` outlive the connection, for parts that must identify the process after it.
    """

    number: int
    peer: Peer
    socket: socket.socket
    pidfd: Pidfd | None = None
    started: float | None = None  # fallback identity if there is no pidfd
    greeted: bool = False  # has sent HELLO or REGISTER
    is_launcher: bool = False  # a `tandem run`, which lives on without the connection

    def is_there(self) -> bool:
        """Tell whether this very process lives, not one that reused its pid. Any thread."""
        if self.pidfd is not None:
            return self.pidfd.is_there()
        try:
            return self.started is not None and start_time(self.peer.pid) == self.started
        except OSError:
            return True  # not known now; checked again later


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A decoded packet."""

    connection: Connection
    packet: _native.Hello | _native.Register | _native.Mapped | _native.Shared | _native.Uses


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """The connection, and with it the lease, has ended; for a launcher: its process has ended."""

    connection: Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Readable:
    """The peer has read packets, after there had been no room to send one."""

    connection: Connection


Message = Received | Readable | Gone


@dataclass(slots=True)
class _Watch:
    """The meaning of a selector key."""

    connection: Connection | None  # None = the listening socket or the wake eventfd
    action: Callable[[], None] = field(repr=False)


class AttachServer:
    """Listens on the attach socket."""

    def __init__(
        self,
        path: Path,
        *,
        deliver: Callable[[Message], None],
        max_per_uid: int = 8192,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Bind the socket, mode 0666, replacing a stale one: the caller owns the directory."""
        self._deliver = deliver
        self._max_per_uid = max_per_uid
        self._descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        # For all users but root and our own: the rest is reserved for those two and for RPC
        # clients.
        self._most_of_others = self._descriptors * 3 // 4 // DESCRIPTORS_PER_PROCESS
        self._per_uid: Counter[int] = Counter()
        self._connections: dict[int, Connection] = {}
        self._without_pidfd: dict[int, Connection] = {}
        self._silent: dict[int, float] = {}  # connection -> deadline for its HELLO
        self._now_s = now_s
        # Connections with a blocked sender; filled by any thread.
        self._full: deque[Connection] = deque()
        self._next_number = 1
        self._warned_of_unseen = False
        self._seldom = Seldom()
        self._selector = selectors.DefaultSelector()
        self._door = Door(
            path,
            kind=socket.SOCK_SEQPACKET,
            backlog=BACKLOG,
            selector=self._selector,
            data=_Watch(None, self._accept),
        )
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._stopping = False
        self._watch(self._wake_fd, None, self._wake_up)

    def run(self) -> None:
        """Poll until `stop` is called."""
        while not self._stopping:
            self.poll(timeout_s=self._look_again_s())

    def poll(self, *, timeout_s: float | None) -> None:
        """Handle what has arrived; wait at most that long for something."""
        for key, events in self._selector.select(self._door.wait_s(timeout_s)):
            watch: _Watch = key.data
            connection = watch.connection
            if connection is None:
                watch.action()
                continue
            if events & selectors.EVENT_WRITE and connection.number in self._connections:
                self._selector.modify(connection.socket, selectors.EVENT_READ, watch)
                self._deliver(Readable(connection=connection))
            if events & selectors.EVENT_READ and connection.number in self._connections:
                watch.action()
        self._look_at_the_full()
        self._look_for_the_dead()
        self._look_for_the_silent()

    def stop(self) -> None:
        """End `run`. Any thread."""
        self._stopping = True
        os.eventfd_write(self._wake_fd, 1)

    def close(self) -> None:
        """Close everything, after `run` has returned."""
        for connection in list(self._connections.values()):
            self._release(connection)
        self._door.close()
        self._selector.close()
        os.close(self._wake_fd)

    def send(self, connection: Connection, packet: bytes, fds: tuple[int, ...] = ()) -> bool:
        """Send one packet. False: the peer must read first to make room; then `Readable` follows.

        Any thread. A packet to a peer that is gone counts as sent; `poll` reports that peer.
        """
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        try:
            connection.socket.sendmsg([packet], rights, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except BlockingIOError:
            self._full.append(connection)
            os.eventfd_write(self._wake_fd, 1)
            return False
        except OSError:
            pass
        return True

    def hang_up(self, connection: Connection) -> None:
        """End the connection; `Gone` follows. Any thread."""
        with contextlib.suppress(OSError):
            connection.socket.shutdown(socket.SHUT_RDWR)

    def refuse(self, connection: Connection, *, code: int, reason: str) -> None:
        """Send the reason, then hang up. Any thread."""
        if self._seldom.is_time(connection.peer.uid):
            log.warning("refused", pid=connection.peer.pid, uid=connection.peer.uid, reason=reason)
        self.send(connection, _native.encode_refused(code=code, reason=reason))
        self.hang_up(connection)

    def _watch(
        self,
        source: socket.socket | Pidfd | int,
        connection: Connection | None,
        action: Callable[[], None],
    ) -> None:
        self._selector.register(source, selectors.EVENT_READ, _Watch(connection, action))

    def _accept(self) -> None:
        for accepted in self._door.newcomers():
            try:
                self._admit(accepted)
            # No descriptor left to watch it with: treat it as not accepted.
            except OSError as error:
                accepted.close()
                self._door.turn_away(error)

    def _admit(self, accepted: socket.socket) -> None:
        connection = Connection(number=self._next_number, peer=peer_of(accepted), socket=accepted)
        self._next_number += 1
        uid = connection.peer.uid
        if reason := self._no_room(uid):
            self.refuse(connection, code=REFUSED_NO_ROOM, reason=reason)
            accepted.close()
            return
        try:
            self._identify(connection)
        except ProcessLookupError:
            accepted.close()
            return
        self._per_uid[uid] += 1
        self._connections[connection.number] = connection
        self._silent[connection.number] = self._now_s() + HELLO_WITHIN_S
        try:
            self._watch(accepted, connection, lambda: self._read(connection))
            if connection.pidfd is not None:
                self._watch(connection.pidfd, connection, lambda: self._end(connection))
        except OSError:
            self._release(connection)
            raise

    def _no_room(self, uid: int) -> str:
        """Return why the uid may attach no further process; empty: it may."""
        if self._per_uid[uid] >= self._max_per_uid:
            return f"uid {uid} already has {self._max_per_uid} processes attached"
        own = {0, os.geteuid()}
        if uid in own:
            return ""
        limit = f"of the {self._descriptors} files that tandemd may open (LimitNOFILE=)"
        if self._per_uid[uid] >= self._most_of_others // 2:
            return f"uid {uid} has {self._per_uid[uid]} processes attached, its share {limit}"
        others = self._per_uid.total() - sum(self._per_uid[uid] for uid in own)
        if others >= self._most_of_others:
            return f"users have {others} processes attached, their share {limit}"
        return ""

    def _identify(self, connection: Connection) -> None:
        if not connection.peer.is_seen:
            return  # refused at its first packet; until then only its connection is watched
        connection.pidfd = open_pidfd(connection.peer.pid)
        if connection.pidfd is None:
            connection.started = start_time(connection.peer.pid)
            self._without_pidfd[connection.number] = connection

    def _read(self, connection: Connection) -> None:
        try:
            packet = connection.socket.recv(MAX_PACKET_BYTES + 1)
        except BlockingIOError:
            return
        except OSError:
            packet = b""
        if packet:
            self._decode(connection, packet)
        elif connection.is_launcher:
            self._selector.unregister(connection.socket)  # its process is still watched
            connection.socket.close()
        else:
            self._end(connection)

    def _decode(self, connection: Connection, packet: bytes) -> None:
        if not connection.peer.is_seen:
            self._refuse_unseen(connection)
            return
        try:
            decoded = _native.decode(packet)
        except ValueError as error:
            code = REFUSED_PROTOCOL if "protocol" in str(error) else REFUSED_MALFORMED
            self.refuse(connection, code=code, reason=str(error))
            return
        if connection.greeted is isinstance(decoded, _native.Hello | _native.Register):
            reason = "a connection sends HELLO or REGISTER once, and everything else after HELLO"
            self.refuse(connection, code=REFUSED_MALFORMED, reason=reason)
            return
        connection.greeted = True
        self._silent.pop(connection.number, None)
        connection.is_launcher |= isinstance(decoded, _native.Register)
        self._deliver(Received(connection=connection, packet=decoded))

    def _refuse_unseen(self, connection: Connection) -> None:
        # Log once, not at each attempt: the cure is to start the daemon in another way.
        if not self._warned_of_unseen:
            self._warned_of_unseen = True
            log.warning("refusing processes", uid=connection.peer.uid, reason=NOT_SEEN)
        packet = _native.encode_refused(code=REFUSED_IDENTITY, reason=NOT_SEEN)
        self.send(connection, packet)
        self.hang_up(connection)

    def _wake_up(self) -> None:
        os.eventfd_read(self._wake_fd)

    def _look_at_the_full(self) -> None:
        both = selectors.EVENT_READ | selectors.EVENT_WRITE
        while self._full:
            connection = self._full.popleft()
            if connection.number in self._connections and connection.socket.fileno() >= 0:
                watch = _Watch(connection, partial(self._read, connection))
                self._selector.modify(connection.socket, both, watch)

    def _look_for_the_dead(self) -> None:
        for connection in list(self._without_pidfd.values()):
            if not connection.is_there():
                self._end(connection)

    def _look_again_s(self) -> float | None:
        """Return when to check next on connections whose end or silence causes no event."""
        waits_s = [FALLBACK_LOOK_S] if self._without_pidfd else []
        if self._silent:
            waits_s.append(max(0.0, next(iter(self._silent.values())) - self._now_s()))
        return min(waits_s, default=None)

    def _look_for_the_silent(self) -> None:
        """Close connections that sent no HELLO in time; the first has waited longest."""
        while self._silent:
            number, until_s = next(iter(self._silent.items()))
            if until_s > self._now_s():
                return
            self._release(self._connections[number])

    def _end(self, connection: Connection) -> None:
        self._release(connection)
        if connection.greeted:
            self._deliver(Gone(connection=connection))

    def _release(self, connection: Connection) -> None:
        if self._connections.pop(connection.number, None) is None:
            return
        self._per_uid[connection.peer.uid] -= 1
        self._without_pidfd.pop(connection.number, None)
        self._silent.pop(connection.number, None)
        # Either may be unregistered: it could not be watched, or is a launcher's closed socket.
        for watched in (connection.socket, connection.pidfd):
            with contextlib.suppress(KeyError, ValueError):
                if watched is not None:
                    self._selector.unregister(watched)
        connection.socket.close()
