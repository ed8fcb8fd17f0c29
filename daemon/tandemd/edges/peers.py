"""Who is at the other end of a unix socket, and whether that process still lives."""

from __future__ import annotations

import os
import select
import socket
import struct
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Identity as the kernel knows it, taken when the connection was made."""

    pid: int
    uid: int
    gid: int


def peer_of(connection: socket.socket) -> Peer:
    """SO_PEERCRED of a connected unix socket."""
    size = struct.calcsize("3i")
    pid, uid, gid = struct.unpack(
        "3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    )
    return Peer(pid=pid, uid=uid, gid=gid)


class Pidfd:
    """A process, whoever has its pid later. Closed once nobody refers to it."""

    def __init__(self, descriptor: int) -> None:
        """Takes the descriptor over."""
        self._descriptor = descriptor

    def fileno(self) -> int:
        """For selectors: readable once the process has ended."""
        return self._descriptor

    def is_there(self) -> bool:
        """Whether the process lives. Any thread."""
        poll = select.poll()
        poll.register(self, select.POLLIN)
        return not poll.poll(0)

    def __del__(self) -> None:
        """Without the last user."""
        os.close(self._descriptor)


def open_pidfd(pid: int) -> Pidfd | None:
    """The process that has this pid now; None where pidfds do not exist.

    Raises:
        ProcessLookupError: the process has ended already.
    """
    try:
        return Pidfd(os.pidfd_open(pid))
    except ProcessLookupError:
        raise
    except OSError:
        return None


def start_time(pid: int) -> float | None:
    """Tells a pid from its reuse where there are no pidfds; None when the process is gone."""
    import psutil

    try:
        return psutil.Process(pid).create_time()
    except psutil.Error:
        return None
