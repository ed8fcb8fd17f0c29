"""Who is at the other end of a unix socket, and whether that process still lives."""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import struct
from dataclasses import dataclass

# Kernels before 5.3, and filters of system calls that know none later.
NO_PIDFDS = (errno.ENOSYS, errno.EPERM, errno.ENODEV)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Identity as the kernel knows it, taken when the connection was made."""

    pid: int
    uid: int

    @property
    def is_seen(self) -> bool:
        """Whether it is in our PID namespace or one below: else it has no pid here."""
        return self.pid != 0


def peer_of(connection: socket.socket) -> Peer:
    """SO_PEERCRED of a connected unix socket."""
    size = struct.calcsize("3i")
    pid, uid, _ = struct.unpack(
        "3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    )
    return Peer(pid=pid, uid=uid)


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

    def send(self, number: int) -> None:
        """Send it a signal. Any thread.

        Raises:
            ProcessLookupError: it has ended.
            PermissionError: we may not.
        """
        signal.pidfd_send_signal(self._descriptor, number)

    def __del__(self) -> None:
        """Without the last user."""
        os.close(self._descriptor)


def open_pidfd(pid: int) -> Pidfd | None:
    """The process that has this pid now; None where pidfds do not exist.

    Raises:
        ProcessLookupError: the process has ended already.
        OSError: there is no descriptor, or no memory, for one more.
    """
    try:
        return Pidfd(os.pidfd_open(pid))
    except OSError as error:
        if error.errno not in NO_PIDFDS:
            raise
        return None


def has_other_clock(pid: int) -> bool:
    """Whether the process's CLOCK_MONOTONIC is another than ours: of another time namespace.

    One may have our clock all the same. False as well where the kernel knows none or does not tell.
    """
    if _time_namespace(pid) == _time_namespace("self"):
        return False
    offsets = _monotonic_offset(pid), _monotonic_offset("self")
    return None not in offsets and offsets[0] != offsets[1]


def _time_namespace(process: int | str) -> str | None:
    try:
        return os.readlink(f"/proc/{process}/ns/time")
    except OSError:
        return None


def _monotonic_offset(process: int | str) -> str | None:
    """Seconds and nanoseconds, as the kernel writes them."""
    try:
        with open(f"/proc/{process}/timens_offsets", encoding="ascii") as lines:
            return next((line for line in lines if line.startswith("monotonic")), None)
    except OSError:
        return None


def start_time(pid: int) -> float | None:
    """Tells a pid from its reuse where there are no pidfds; None when the process is gone.

    Raises:
        OSError: it cannot be looked up now, for want of descriptors, say.
    """
    import psutil

    try:
        return psutil.Process(pid).create_time()
    except psutil.Error:
        return None
