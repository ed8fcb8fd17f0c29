"""A listening unix socket that comes through a lack of descriptors.

Without a free descriptor nobody can be accepted, and who is not accepted makes the socket readable
for ever. So one descriptor is kept in reserve to take newcomers with and turn them away; then the
door stays shut for a moment, and the log hears of it once a minute.
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

SHORT = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS)  # it may be better later
SHUT_S = 0.1
TELL_S = 60.0
MOST_AT_ONCE = 256  # a flood of newcomers does not keep those who are there from being heard

log = structlog.get_logger(__name__)


class Selector(Protocol):
    """So much of selectors.BaseSelector."""

    def register(self, fileobj: socket.socket, events: int, data: Any, /) -> object:  # noqa: ANN401 - what it takes
        """Tell of what comes to it."""

    def unregister(self, fileobj: socket.socket, /) -> object:
        """Tell no more."""


class Door:
    """Belongs to one thread, whose selector it is in while it is open."""

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

        `data`: what the selector is to say when somebody has come.

        Raises:
            OSError: there can be no such socket.
        """
        self._listener = socket.socket(socket.AF_UNIX, kind | socket.SOCK_NONBLOCK)
        # It has its name only once it listens: whoever sees it gets in.
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
        """Who has come; their sockets do not block. Nobody, if nobody more can be taken."""
        taken: list[socket.socket] = []
        while len(taken) < MOST_AT_ONCE:
            try:
                accepted, _ = self._listener.accept()
            except OSError as error:
                if error.errno in SHORT:
                    self.turn_away(error)
                elif error.errno not in (errno.EAGAIN, errno.ECONNABORTED, errno.EINTR):
                    log.warning("cannot accept, continuing without", reason=str(error))
                break
            accepted.settimeout(0)
            taken.append(accepted)
        return taken

    def turn_away(self, why: OSError) -> None:
        """There is too little for one more: send off who waits, and shut for a moment."""
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None
            with contextlib.suppress(OSError):  # nobody more, or another thread was quicker
                for _ in range(MOST_AT_ONCE):
                    self._listener.accept()[0].close()
            self._reserve()
        now_s = self._now_s()
        if now_s >= self._tell_from_s:
            self._tell_from_s = now_s + TELL_S
            log.warning("turning newcomers away", at=self._path.name, reason=str(why))
        if self._shut_until_s is None:
            self._selector.unregister(self._listener)
        self._shut_until_s = now_s + SHUT_S

    def wait_s(self, wanted_s: float | None) -> float | None:
        """How long the selector may wait that else would for `wanted_s`; opens if it is time."""
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
        """Listen no more; before the selector closes."""
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
