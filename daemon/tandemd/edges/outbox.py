"""Packets for a process that does not read at the moment.

A process may be stopped for as long as it likes: by a signal, a debugger, or whoever suspends its
job. It still exists, and so does its memory. Packets that must reach it in order wait here. A
repeated packet without descriptors is queued only once, because it only says "look again". State,
such as the peers it looks at, does not wait here: its owner offers it again later, as it is then.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable

import structlog

Send = Callable[[bytes, tuple[int, ...]], bool]

MOST = 64  # packets: more than a process is sent about its memory before it has to answer

log = structlog.get_logger(__name__)


class Outbox:
    """The outbox of one process. Belongs to the loop's thread."""

    def __init__(self, send: Send) -> None:
        """`send` returns False if the process must read first; call `go_on` once it has."""
        self._send = send
        self._is_full = False
        self._waiting: deque[tuple[bytes, tuple[int, ...]]] = deque()

    def put(self, packet: bytes, fds: tuple[int, ...]) -> bool:
        """Send after all that waits; the caller keeps its descriptors. False: there is no room."""
        if self.offer(packet, fds):
            return True
        if not fds and (packet, ()) in self._waiting:
            self._waiting.remove((packet, ()))
        kept = None if len(self._waiting) >= MOST else _kept(fds)
        if kept is None:
            return False
        self._waiting.append((packet, kept))
        return True

    def offer(self, packet: bytes, fds: tuple[int, ...]) -> bool:
        """Send now or not at all; returns whether it was sent."""
        if self._is_full:
            return False
        self._is_full = not self._send(packet, fds)
        return not self._is_full

    def go_on(self) -> bool:
        """Send what waits, after the process has read; returns whether there is room for more."""
        self._is_full = False
        while self._waiting and self.offer(*self._waiting[0]):
            _close(self._waiting.popleft()[1])
        return not self._is_full

    def close(self) -> None:
        """Drop what waits, because the process is gone."""
        while self._waiting:
            _close(self._waiting.popleft()[1])


class Outboxes:
    """The outboxes of all processes. Belongs to the loop's thread."""

    def __init__(self) -> None:
        self._outboxes: dict[int, Outbox] = {}
        self._hang_up: dict[int, Callable[[], None]] = {}

    def open(self, process_id: int, *, send: Send, hang_up: Callable[[], None]) -> None:
        """Add a process; `send` is as for an outbox."""
        self._outboxes[process_id] = Outbox(send)
        self._hang_up[process_id] = hang_up

    def send(self, process_id: int, packet: bytes, fds: tuple[int, ...]) -> None:
        """Put a packet on a process's connection, in order, as soon as there is room."""
        outbox = self._outboxes.get(process_id)
        if outbox is not None and not outbox.put(packet, fds):
            log.warning("a process does not read its messages, hanging up", process=process_id)
            self._hang_up[process_id]()

    def offer(self, process_id: int, packet: bytes, fds: tuple[int, ...]) -> bool:
        """Put a packet on a process's connection now or not at all; returns whether it was put."""
        outbox = self._outboxes.get(process_id)
        return outbox is None or outbox.offer(packet, fds)

    def go_on(self, process_id: int) -> bool:
        """Send what waits, after the process has read; returns whether there is room for more."""
        return self._outboxes[process_id].go_on()

    def close(self, process_id: int) -> None:
        """Drop a process that has gone."""
        del self._hang_up[process_id]
        self._outboxes.pop(process_id).close()


def _kept(fds: tuple[int, ...]) -> tuple[int, ...] | None:
    kept: list[int] = []
    try:
        # Extend, so that descriptors duplicated before a failure are in `kept`.
        kept.extend(map(os.dup, fds))
    except OSError:
        _close(kept)
        return None
    return tuple(kept)


def _close(fds: tuple[int, ...] | list[int]) -> None:
    for fd in fds:
        os.close(fd)
