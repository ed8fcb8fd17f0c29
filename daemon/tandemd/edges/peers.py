"""Identifies the process at the other end of a unix socket, and tells whether it still lives."""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import struct
from dataclasses import dataclass

# Kernels before 5.3, and system call filters that do not know later calls.
NO_PIDFDS = (errno.ENOSYS, errno.EPERM, errno.ENODEV)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Identity as the kernel recorded it when the connection was made."""

    pid: int
    uid: int

    @property
    def is_seen(self) -> bool:
        """Tell whether it is in our PID namespace or one below; otherwise it has no pid here."""
        return self.pid != 0


def peer_of(connection: socket.socket) -> Peer:
    """Read SO_PEERCRED of a connected unix socket."""
    size = struct.calcsize("3i")
    pid, uid, _ = struct.unpack(
        "3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    )
    return Peer(pid=pid, uid=uid)


class Pidfd:
    """A process, even if its pid is reused later. Closed with the last reference."""

    def __init__(self, descriptor: int) -> None:
        """Take over the descriptor."""
        self._descriptor = descriptor

    def fileno(self) -> int:
        """Return the descriptor for selectors, which is readable once the process has ended."""
        return self._descriptor

    def is_there(self) -> bool:
        """Tell whether the process lives. Any thread."""
        poll = select.poll()
        poll.register(self, select.POLLIN)
        return not poll.poll(0)

    def send(self, number: int) -> None:
        """Send the process a signal. Any thread.

        Raises:
            ProcessLookupError: it has ended.
            PermissionError: the daemon may not signal it.
        """
        signal.pidfd_send_signal(self._descriptor, number)

    def __del__(self) -> None:
        """Close the descriptor."""
        os.close(self._descriptor)


def open_pidfd(pid: int) -> Pidfd | None:
    """Open the process that has this pid now; None if the kernel has no pidfds.

    Raises:
        ProcessLookupError: the process has ended already.
        OSError: no descriptor or memory is left for it.
    """
    try:
        return Pidfd(os.pidfd_open(pid))
    except OSError as error:
        if error.errno not in NO_PIDFDS:
            raise
        return None


def has_other_clock(pid: int) -> bool:
    """Tell whether the process's CLOCK_MONOTONIC differs from ours, as in another time namespace.

    A process in another namespace may still have our clock. Returns False, too, if the kernel has
    no time namespaces or does not tell.
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
    """Return the kernel's line with seconds and nanoseconds."""
    try:
        with open(f"/proc/{process}/timens_offsets", encoding="ascii") as lines:
            return next((line for line in lines if line.startswith("monotonic")), None)
    except OSError:
        return None


def start_time(pid: int) -> float | None:
    """Return what tells a pid from its reuse without pidfds; None if the process is gone.

    Raises:
        OSError: it cannot be read now, for example for lack of descriptors.
    """
    import psutil

    try:
        return psutil.Process(pid).create_time()
    except psutil.Error:
        return None
