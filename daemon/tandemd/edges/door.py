"""A listening unix socket that copes with running out of descriptors.

Without a free descriptor no connection can be accepted, and a pending one keeps the socket readable
forever. So one descriptor is held in reserve to accept newcomers with and close them at once. Then
the door stays shut for a moment; this is logged at most once a minute.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import structlog

SHORT = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS)  # shortages that may pass
SHUT_S = 0.1
TELL_S = 60.0
MOST_AT_ONCE = 256  # so that a flood of newcomers does not starve the connections that exist

log = structlog.get_logger(__name__)


class Selector(Protocol):
    """The part of selectors.BaseSelector that a door uses."""

    def register(self, fileobj: socket.socket, events: int, data: Any, /) -> object:  # noqa: ANN401 - what it takes
        """Watch the socket."""

    def unregister(self, fileobj: socket.socket, /) -> object:
        """Stop watching the socket."""


class Door:
    """The listening socket. Belongs to one thread, in whose selector it is while it is open."""

    def __init__(
        self,
        path: Path,
        *,
        kind: socket.SocketKind,
        backlog: int,
        selector: Selector,
        data: object,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Listen at `path`, mode 0666, replacing a stale socket: the caller owns the directory.

        `data` is what the selector returns when a connection has arrived.

        Raises:
            OSError: the socket cannot be created.
        """
        self._listener = socket.socket(socket.AF_UNIX, kind | socket.SOCK_NONBLOCK)
        # Give it its name only once it listens, so that every client that sees it can connect.
        made = path.with_suffix(".new")
        made.unlink(missing_ok=True)
        self._listener.bind(str(made))
        made.chmod(0o666)
        self._listener.listen(backlog)
        made.rename(path)
        self._selector = selector
        self._data = data
        self._now_s = now_s
        self._path = path
        self._shut_until_s: float | None = None
        self._tell_from_s = 0.0
        self._spare: int | None = None
        self._reserve()
        self._selector.register(self._listener, selectors.EVENT_READ, data)

    def newcomers(self) -> list[socket.socket]:
        """Return new connections, non-blocking; none while the daemon lacks descriptors."""
        taken: list[socket.socket] = []
        while len(taken) < MOST_AT_ONCE:
            try:
                accepted, _ = self._listener.accept()
            except OSError as error:
                if error.errno in SHORT:
                    self.turn_away(error)
                elif error.errno not in (errno.EAGAIN, errno.ECONNABORTED, errno.EINTR):
                    log.warning(
                        "cannot accept a connection, continuing without it", reason=str(error)
                    )
                break
            accepted.settimeout(0)
            taken.append(accepted)
        return taken

    def turn_away(self, why: OSError) -> None:
        """Close the waiting connections for lack of descriptors, and shut the door for a moment."""
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None
            # No connection is left, or another thread took the descriptor.
            with contextlib.suppress(OSError):
                for _ in range(MOST_AT_ONCE):
                    self._listener.accept()[0].close()
            self._reserve()
        now_s = self._now_s()
        if now_s >= self._tell_from_s:
            self._tell_from_s = now_s + TELL_S
            log.warning("turning new connections away", at=self._path.name, reason=str(why))
        if self._shut_until_s is None:
            self._selector.unregister(self._listener)
        self._shut_until_s = now_s + SHUT_S

    def wait_s(self, wanted_s: float | None) -> float | None:
        """Return how long the selector may wait, at most `wanted_s`; reopens the door when due."""
        if self._shut_until_s is None:
            return wanted_s
        left_s = self._shut_until_s - self._now_s()
        if left_s > 0:
            return left_s if wanted_s is None else min(left_s, wanted_s)
        self._reserve()
        self._shut_until_s = None
        self._selector.register(self._listener, selectors.EVENT_READ, self._data)
        return wanted_s

    def close(self) -> None:
        """Stop listening. Call before the selector is closed."""
        if self._shut_until_s is None:
            self._selector.unregister(self._listener)
        self._listener.close()
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None

    def _reserve(self) -> None:
        if self._spare is None:
            with contextlib.suppress(OSError):
                self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
