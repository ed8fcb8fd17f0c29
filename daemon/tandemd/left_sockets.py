"""Stale socket files, left behind by an owner that has ended."""

from __future__ import annotations

import errno
import socket
from pathlib import Path


def take_away_left(path: Path, kind: socket.SocketKind = socket.SOCK_STREAM) -> None:
    """Remove the socket at `path` if nobody listens on it; anything else at that path stays.

    Raises:
        OSError: it cannot be removed.
    """
    if not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX, kind) as asking:
        asking.settimeout(0)  # the listener may be busy, so do not wait for it
        if asking.connect_ex(str(path)) == errno.ECONNREFUSED:
            path.unlink()
