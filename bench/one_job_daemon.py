"""The daemon's side of the channel to a single job, driven by the measurement: no policy, no loop.

It speaks the real protocol with the real library and runs the daemon's two native threads, so a
measurement covers the data plane alone.
"""

from __future__ import annotations

import array
import mmap
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.stage import NotMeasuredError
from tandem import _native

ACCEPT_S = 10.0
BEAT_NS = 50_000_000
FLUTTER_S = 50e-6
STALE_NS = 2_000_000_000
BUSY_UNTIL_OFFSET = 8  # of shm::PresencePage
WAITING_THREADS_OFFSET = 192  # of shm::StatePage
LATENCY_CLASS, BATCH_CLASS = 1, 3
GROUP_SMS = 8  # on the software GPU's profile h200
LONG_SEGMENT_NS = 100_000_000  # so long that no launch closes a segment
USUAL_SEGMENT_NS = 100_000


@dataclass(frozen=True, kw_only=True)
class Treatment:
    """How the daemon treats the job. With `has_peer`, the job watches the peer's presence."""

    job_class: int = BATCH_CLASS
    segment_ns: int = USUAL_SEGMENT_NS
    has_peer: bool = True
    has_set: bool = False  # a set of all SMs: a stream with fewer costs the driver more
    swappable: bool = False  # the job's memory may be moved, so the shim uses virtual memory
    detects: bool = True  # whether the poller detects structure in the telemetry


class OneJob:
    """One attached process, with a peer of the latency class. Owned by the thread that made it."""

    def __init__(self, connection: socket.socket, treatment: Treatment) -> None:
        """Answer the HELLO of `connection`."""
        self._connection = connection
        self.process = _native.Process(process_id=1, job_id=1)
        self._peer = _native.Process(process_id=2, job_id=2)
        self._presence = mmap.mmap(self._peer.fds[2], mmap.PAGESIZE)
        self.process.stamp(tick_ns=time.monotonic_ns())
        self.process.set_stale(stale_ns=STALE_NS)
        self.process.set_class(job_class=treatment.job_class)
        self.process.set_window(segments=0, segment_ns=treatment.segment_ns)
        self.process.set_flags(honour_presence=True, telemetry=True)
        self.process.set_presence_mask(mask=1 if treatment.has_peer else 0)
        if treatment.has_set:
            self.process.set_sms(first=0, count=0, group_sms=GROUP_SMS)
        self._state = mmap.mmap(self.process.fds[1], mmap.PAGESIZE, prot=mmap.PROT_READ)
        self.records = 0  # records that the job wrote; set by close()
        self.poller = _native.Poller(detects=treatment.detects)
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []
        self._greet(swappable=treatment.swappable)
        self._spawn(self._poll)

    @property
    def peer_presence_fd(self) -> int:
        """The peer's presence page, for a program that plays the peer."""
        return self._peer.fds[2]

    def flutter(self) -> None:
        """Change the peer's presence all the time, but never into the future."""
        self._spawn(self._flutter)

    def await_waiting(self, patience_s: float) -> None:
        """Wait until a thread of the job waits."""
        end = time.monotonic() + patience_s
        while struct.unpack_from("<I", self._state, WAITING_THREADS_OFFSET)[0] == 0:
            if time.monotonic() > end:
                raise NotMeasuredError(f"no thread of the job waited within {patience_s:g} s")
            time.sleep(0.0005)

    def open_gate(self) -> int:
        """Open the gate; return the time just before."""
        now = time.monotonic_ns()
        self.process.set_gate(hold=False)
        return now

    def close(self) -> None:
        """Close the connection and end the threads."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()
        self._connection.close()
        self._presence.close()
        self._state.close()

    def _greet(self, *, swappable: bool) -> None:
        hello = _native.decode(self._connection.recv(4096))
        if not isinstance(hello, _native.Hello):
            msg = f"expected a HELLO, got {type(hello).__name__}"
            raise TypeError(msg)
        welcome = _native.encode_welcome(process_id=1, job_id=1, clock=0, swappable=swappable)
        _send(self._connection, welcome, self.process.fds)
        self._connection.recv(4096)  # MAPPED
        present = _native.encode_presence(index=0, job_class=LATENCY_CLASS)
        _send(self._connection, present, (self._peer.fds[2],))

    def _spawn(self, body: Callable[[], None]) -> None:
        thread = threading.Thread(target=body, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _poll(self) -> None:
        poller = self.poller
        poller.add(self.process, group=1)
        poller.start()
        while not self._stopped.is_set():
            poller.wait(timeout_ns=BEAT_NS)
        self.records = poller.snapshots()[0].records
        poller.stop()

    def _flutter(self) -> None:
        while not self._stopped.wait(FLUTTER_S):
            struct.pack_into("<Q", self._presence, BUSY_UNTIL_OFFSET, time.monotonic_ns() - 1)


@contextmanager
def listening(path: Path) -> Iterator[socket.socket]:
    """Listen on the attach socket until the block ends."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen()
        listener.settimeout(ACCEPT_S)
        try:
            yield listener
        finally:
            path.unlink()


@contextmanager
def one_job(listener: socket.socket, treatment: Treatment) -> Iterator[OneJob]:
    """Serve the next process that attaches until the block ends."""
    connection, _ = listener.accept()
    connection.settimeout(ACCEPT_S)
    job = OneJob(connection, treatment)
    try:
        yield job
    finally:
        job.close()


def _send(connection: socket.socket, packet: bytes, fds: tuple[int, ...]) -> None:
    rights = array.array("i", fds)
    connection.sendmsg([packet], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
