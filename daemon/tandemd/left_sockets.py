"""Sockets in the file system whose owner has ended without taking them away."""

from __future__ import annotations

import errno
import socket
from pathlib import Path


def take_away_left(path: Path, kind: socket.SocketKind = socket.SOCK_STREAM) -> None:
    """Remove the socket at `path` if nobody listens there; whatever else is there stays.

    Raises:
        OSError: it cannot be removed.
    """
    if not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX, kind) as asking:
        asking.settimeout(0)  # who listens may be busy
        if asking.connect_ex(str(path)) == errno.ECONNREFUSED:
            path.unlink()
