"""A fake daemon that admits every process, on whatever clock it has, and holds each once."""

from __future__ import annotations

import array
import selectors
import socket
import threading
from pathlib import Path

from tandem import _native

LONGEST_STALE_NS = 10**10  # the longest that a shim accepts
LOOK_S = 0.001


class Keeper:
    """Listens on attach.sock in a folder until closed.

    Every process is welcomed with a closed gate, which opens once a thread waits there, and with a
    window of one segment. So everything a process does, it does held and windowed.
    """

    def __init__(self, folder: Path, *, segment_ns: int = 100_000) -> None:
        self.path = folder / "attach.sock"
        self.attached = 0  # so far
        self.first_devices: set[bytes] = set()  # UUIDs they named first
        self.held = 0  # how many of them have waited at the gate
        self._segment_ns = segment_ns
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(self.path))
        self._listener.listen(64)
        self._poller = _native.Poller()
        self._processes: dict[socket.socket, _native.Process] = {}
        self._closed: dict[int, _native.Process] = {}  # those with a closed gate, by process id
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Disconnect every process and stop listening."""
        self._stopping.set()
        self._thread.join()
        for connection in (*self._processes, self._listener):
            connection.close()
        self._selector.close()
        self.path.unlink()

    def __enter__(self) -> Keeper:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            for key, _ in self._selector.select(LOOK_S if self._closed else 0.05):
                assert isinstance(key.fileobj, socket.socket)
                if key.fileobj is self._listener:
                    connection, _ = self._listener.accept()
                    self._selector.register(connection, selectors.EVENT_READ)
                else:
                    self._read(key.fileobj)
            self._open_gates()

    def _read(self, connection: socket.socket) -> None:
        packet = connection.recv(4096)
        if not packet:
            self._forget(connection)
            return
        hello = _native.decode(packet)
        if isinstance(hello, _native.Hello):
            self._welcome(connection, hello)

    def _welcome(self, connection: socket.socket, hello: _native.Hello) -> None:
        self.attached += 1
        self.first_devices.update(hello.device_uuids[:1])
        process = _native.Process(process_id=self.attached, job_id=1)
        process.set_class(job_class=3)
        process.set_flags(honour_presence=True, telemetry=True)
        process.set_window(segments=1, segment_ns=self._segment_ns)
        process.set_stale(stale_ns=LONGEST_STALE_NS)
        process.stamp(tick_ns=0)
        process.set_gate(hold=True)
        self._processes[connection] = process
        self._closed[process.process_id] = process
        self._poller.add(process, group=self.attached)
        packet = _native.encode_welcome(process_id=process.process_id, job_id=1, clock=hello.clock)
        rights = array.array("i", process.fds).tobytes()
        connection.sendmsg([packet], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])

    def _open_gates(self) -> None:
        if not self._closed:
            return
        self._poller.poll(now_ns=0)
        for snapshot in self._poller.snapshots():
            if snapshot.waiting_threads and snapshot.process_id in self._closed:
                self.held += 1
                self._closed.pop(snapshot.process_id).set_gate(hold=False)

    def _forget(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        connection.close()
        process = self._processes.pop(connection, None)
        if process is not None:
            self._closed.pop(process.process_id, None)
            self._poller.remove(process_id=process.process_id)
