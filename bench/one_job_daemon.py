"""The daemon's side of the channel for one job, moved by hand: no policy and no loop.

It speaks the real protocol with the real library, so what is measured is the data plane alone.
"""

from __future__ import annotations

import array
import mmap
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tandem import _native

ACCEPT_S = 10.0
STAMP_PERIOD_S = 0.05
STALE_NS = 2_000_000_000
BUSY_UNTIL_OFFSET = 8  # of shm::PresencePage
LATENCY_CLASS, BATCH_CLASS = 1, 3


class OneJob:
    """One attached process with one peer of the latency class. Owned by the thread that made it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.process = _native.Process(process_id=1, job_id=1)
        self._peer = _native.Process(process_id=2, job_id=2)
        self._presence = mmap.mmap(self._peer.fds[2], mmap.PAGESIZE)
        self.process.stamp(tick_ns=time.monotonic_ns())
        self.process.set_stale(stale_ns=STALE_NS)
        self.process.set_class(job_class=BATCH_CLASS)
        self.process.set_flags(honour_presence=True, telemetry=True)
        self.process.set_presence_mask(mask=1)
        self._stopped = threading.Event()
        self._greet()

    def busy_for(self, length_ns: int) -> int:
        """Make the peer busy; returns when that began."""
        now = time.monotonic_ns()
        struct.pack_into("<Q", self._presence, BUSY_UNTIL_OFFSET, now + length_ns)
        return now

    def open_gate(self) -> int:
        """Open the gate; returns when that began."""
        now = time.monotonic_ns()
        self.process.set_gate(hold=False)
        return now

    def close(self) -> None:
        """End the connection and the heartbeat."""
        self._stopped.set()
        self._heart.join()
        self._connection.close()

    def _greet(self) -> None:
        hello = _native.decode(self._connection.recv(4096))
        if not isinstance(hello, _native.Hello):
            msg = f"expected a HELLO, got {type(hello).__name__}"
            raise TypeError(msg)
        welcome = _native.encode_welcome(process_id=1, job_id=1, clock=0)
        _send(self._connection, welcome, self.process.fds)
        self._connection.recv(4096)  # MAPPED
        present = _native.encode_presence(index=0, job_class=LATENCY_CLASS)
        _send(self._connection, present, (self._peer.fds[2],))
        self._heart = threading.Thread(target=self._beat, daemon=True)
        self._heart.start()

    def _beat(self) -> None:
        while not self._stopped.wait(STAMP_PERIOD_S):
            self.process.stamp(tick_ns=time.monotonic_ns())


@contextmanager
def listening(path: Path) -> Iterator[socket.socket]:
    """The attach socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen()
        listener.settimeout(ACCEPT_S)
        yield listener


def _send(connection: socket.socket, packet: bytes, fds: tuple[int, ...]) -> None:
    rights = array.array("i", fds)
    connection.sendmsg([packet], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
