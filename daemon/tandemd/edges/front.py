"""The RPC socket: everybody may connect, and each user has a part of the connections.

gRPC does not tell a server whose a connection is, and limits only all users' connections together.
So gRPC listens on a socket that only the daemon's user can reach. Connections to the public one are
counted by the uid that the kernel reports, and relayed to gRPC's, byte by byte.
"""

from __future__ import annotations

import asyncio
import resource
import socket
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path

import structlog

from tandemd.edges.door import Door
from tandemd.edges.peers import peer_of
from tandemd.edges.seldom import Seldom

MAX_CONNECTIONS = 1024
MAX_CONNECTIONS_PER_UID = 256  # as many as there are logins
DESCRIPTORS_SHARE = 12  # a connection takes three, and three quarters of all are for jobs
BACKLOG = 4096
LINGER_S = 5.0  # for the last bytes to a peer that reads slowly

log = structlog.get_logger(__name__)


class Front:
    """Listens on the public socket. Belongs to the thread of the event loop."""

    def __init__(self, path: Path, *, behind: Path) -> None:
        """Bind the socket, mode 0666, replacing a stale one; `behind` is where gRPC listens.

        Raises:
            OSError: the socket cannot be created.
        """
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most = min(MAX_CONNECTIONS, soft // DESCRIPTORS_SHARE)
        self._most_of_a_uid = min(MAX_CONNECTIONS_PER_UID, self._most // 2)
        self._behind = behind
        # By uid, oldest first.
        self._carried: dict[int, list[asyncio.Task[None]]] = defaultdict(list)
        self._seldom = Seldom()
        self._opening: asyncio.TimerHandle | None = None
        self._door = Door(
            path,
            kind=socket.SOCK_STREAM,
            backlog=BACKLOG,
            selector=_Readers(),
            data=self._welcome,
        )

    def refusal(self, uid: int) -> str:
        """Return why the uid may open no further connection; empty: it may. Any thread."""
        if len(self._carried.get(uid, ())) < self._most_of_a_uid:
            return ""
        return (
            f"uid {uid} has {self._most_of_a_uid} connections to tandemd.sock, "
            "the most that a user may have; close some"
        )

    async def leave(self) -> None:
        """Accept no more; relay existing connections until gRPC, which is stopping, hangs up."""
        if self._opening is not None:
            self._opening.cancel()
        self._door.close()
        carried = [task for tasks in self._carried.values() for task in tasks]
        if carried:
            await asyncio.wait(carried, timeout=LINGER_S)
        for task in carried:
            task.cancel()
        await asyncio.gather(*carried, return_exceptions=True)

    def _welcome(self) -> None:
        for accepted in self._door.newcomers():
            uid = peer_of(accepted).uid
            if reason := self.refusal(uid) or self._crowded(uid):
                if self._seldom.is_time(uid):
                    log.warning("refusing a connection for calls", uid=uid, reason=reason)
                accepted.close()
            else:
                task = asyncio.create_task(self._carry(accepted))
                self._carried[uid].append(task)
                task.add_done_callback(partial(self._forget, uid))
        self._open_again()

    def _crowded(self, uid: int) -> str:
        """Return why there is no place; the user with the most gives one up to a user with less."""
        if sum(map(len, self._carried.values())) < self._most:
            return ""
        largest = max(self._carried.values(), key=len)
        if len(largest) <= len(self._carried.get(uid, ())) + 1:
            return f"all {self._most} connections are taken, and no user has more than this one"
        largest.pop().cancel()
        return ""

    def _forget(self, uid: int, task: asyncio.Task[None]) -> None:
        tasks = self._carried.get(uid, [])
        if task in tasks:  # unless it had to give way
            tasks.remove(task)
        if not tasks:
            self._carried.pop(uid, None)

    async def _carry(self, accepted: socket.socket) -> None:
        try:
            await _relay(accepted, self._behind)
        except OSError as error:  # most likely out of descriptors: treat it as not accepted
            self._door.turn_away(error)
            self._open_again()
        finally:
            accepted.close()  # a transport that owned it has closed it by now

    def _open_again(self) -> None:
        """Open the door now, or schedule the next attempt for when it is due."""
        if self._opening is not None:
            self._opening.cancel()
            self._opening = None
        left_s = self._door.wait_s(None)
        if left_s is not None:
            self._opening = asyncio.get_running_loop().call_later(left_s, self._open_again)


class _Readers:
    """What a door needs of a selector, on top of the event loop."""

    def register(self, source: socket.socket, _events: int, act: Callable[[], None]) -> None:
        asyncio.get_running_loop().add_reader(source, act)

    def unregister(self, source: socket.socket) -> None:
        asyncio.get_running_loop().remove_reader(source)


class _End(asyncio.Protocol):
    """One of the two sockets of a relayed connection: what arrives here is written to the other."""

    transport: asyncio.Transport
    other: _End

    def __init__(self) -> None:
        self.lost = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        transport.pause_reading()  # until the other end is there

    def join(self, other: _End) -> None:
        self.other = other
        self.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        self.other.transport.write(data)

    def pause_writing(self) -> None:
        """Apply back-pressure to the other end: this one reads too slowly. 64 KiB are buffered."""
        self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        self.other.transport.resume_reading()

    def connection_lost(self, _why: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_result(None)


async def _relay(accepted: socket.socket, behind: Path) -> None:
    """Relay bytes both ways until one side hangs up.

    Raises:
        OSError: there is no connection to gRPC.
    """
    loop = asyncio.get_running_loop()
    ends: list[_End] = []
    try:
        ends.append((await loop.create_unix_connection(_End, sock=accepted))[1])
        ends.append((await loop.create_unix_connection(_End, str(behind)))[1])
        here, there = ends
        here.join(there)
        there.join(here)
        both = [here.lost, there.lost]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.transport.close()  # after its last bytes are out
        await asyncio.wait(both, timeout=LINGER_S)
    finally:
        for end in ends:
            end.transport.abort()
