"""A daemon's side of the attach socket that a test drives step by step, and a job for it."""

from __future__ import annotations

import array
import contextlib
import fcntl
import mmap
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from tandem import _native

Said = TypeVar("Said")

COMMAND_BYTES, HEADER_BYTES = 4096, 64
RECORD_BYTES = 64
LONGEST_STALE_NS = 10**10  # the longest a shim accepts; above, it takes its own 2 s
LONGEST_ROUND_NS = 4 * 10**9  # below RecordBuffer::kInterestNs
SLOTS_OFFSET = 4096
NAP_S = 0.002  # between two looks at another process's page, so as not to burn a core
MONOTONIC, VIRTUAL = 0, 1  # wire::ClockKind
# From Python 3.12 on, a fork beside other threads warns, and the shim's helper is a thread.
FORKS = "ignore:This process:DeprecationWarning"
LOOP = """
import ctypes, os, sys, threading
LOOP = sys.orig_argv[-1]
cu = ctypes.CDLL("libcuda.so.1")
shim = ctypes.CDLL(None)
def launch(stream=5, function=9):
    return cu.cuLaunchKernel(ctypes.c_void_p(function), 4, 1, 1, 32, 1, 1, 0,
                             ctypes.c_void_p(stream), None, None)
def alloc(size):
    address = ctypes.c_uint64()
    return cu.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)), address.value
def free(address):
    return cu.cuMemFree_v2(ctypes.c_uint64(address))
def memory():
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    cu.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
    return free.value >> 20, total.value >> 20
def total():
    size = ctypes.c_size_t()
    cu.cuDeviceTotalMem_v2(ctypes.byref(size), 0)
    return size.value >> 20
def in_child(body):
    pid = os.fork()
    if pid == 0:
        os._exit(body())
    return os.waitpid(pid, 0)[1]
def aside(body):
    threading.Thread(target=body, daemon=True).start()
for line in sys.stdin:
    print(repr(eval(line)), flush=True)
"""


class Job:
    """A Python process under the preload that evaluates one expression at a time."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-W", FORKS, "-c", LOOP],
            env={"FAKE_CONTEXT": "1"} | dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid

    def attach_to(self, daemon: FakeDaemon) -> Attached:
        """Attach the job with its first launch, and wait for that launch."""
        self.start("launch()")
        attached = daemon.attach()
        self.result()
        return attached

    def start(self, expression: str) -> None:
        """Begin to evaluate the expression; `result` waits for it."""
        assert self._process.stdin
        self._process.stdin.write(expression + "\n")
        self._process.stdin.flush()

    def result(self) -> object:
        """Return the value of the last expression."""
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert line, self.end()
        return eval(line)

    def do(self, expression: str) -> object:
        """Evaluate the expression and return its value."""
        self.start(expression)
        return self.result()

    def end(self) -> str:
        """Close its input, wait for a clean exit, return what it wrote to stderr."""
        out, err = self._process.communicate(timeout=20)
        assert self._process.returncode == 0, (self._process.returncode, out, err)
        return err

    def wait(self) -> int:
        """Wait until the job ends by itself; return its exit status."""
        self._process.communicate(timeout=20)
        return self._process.returncode

    def ended_by(self, signal: int, *, within_s: float) -> bool:
        """Send the job a signal; tell whether it ends within that time."""
        self._process.send_signal(signal)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(within_s)
        return self._process.returncode is not None

    def kill(self) -> None:
        """End the job at once."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


class FakeDaemon:
    """Listens on attach.sock in a folder; a test accepts, answers and changes the command page."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "attach.sock"
        self.features: int | None = None  # those of WELCOME, if not the current daemon's
        self.swappable = False  # what WELCOME says about the process
        self.path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(self.path))
        self._listener.listen(8)
        self._listener.settimeout(20)
        self._connections: list[socket.socket] = []

    def accept(self) -> tuple[socket.socket, _native.Hello]:
        """Return the next connection and its HELLO."""
        connection, _ = self._listener.accept()
        connection.settimeout(20)
        self._connections.append(connection)
        hello = _native.decode(connection.recv(4096))
        assert isinstance(hello, _native.Hello)
        return connection, hello

    def answer(
        self, say: Callable[[socket.socket], Said]
    ) -> tuple[socket.socket, _native.Hello, Said]:
        """Answer connections until one hears it; return that one.

        A shim does not wait for ever: if the answer is late, its next attempt gets it.
        """
        while True:
            connection, hello = self.accept()
            with contextlib.suppress(ConnectionError):
                return connection, hello, say(connection)

    def refuse_unread(self, packet: bytes) -> None:
        """Say this to the next connection that hears it, and hang up without reading its HELLO."""
        while True:
            connection, _ = self._listener.accept()
            with connection, contextlib.suppress(ConnectionError):
                assert connection.recv(4096, socket.MSG_PEEK)
                connection.send(packet)
                return

    def welcome(
        self,
        connection: socket.socket,
        process: _native.Process,
        *,
        command_fd: int | None = None,
        clock: int = MONOTONIC,
    ) -> None:
        """Send WELCOME with three memfds, `command_fd` replacing the first; wait for MAPPED."""
        self.offer(connection, process, command_fd=command_fd, clock=clock)
        packet = connection.recv(4096)
        if not packet:
            raise ConnectionResetError("the shim has given up waiting for its welcome")
        assert isinstance(_native.decode(packet), _native.Mapped)

    def offer(
        self,
        connection: socket.socket,
        process: _native.Process,
        *,
        command_fd: int | None = None,
        clock: int = MONOTONIC,
    ) -> None:
        """Send WELCOME without waiting for the shim's reaction."""
        packet = _native.encode_welcome(
            process_id=process.process_id, job_id=1, clock=clock, swappable=self.swappable
        )
        if self.features is not None:
            packet = packet[:48] + self.features.to_bytes(8, "little") + packet[56:]
        command, *others = process.fds
        descriptors = array.array("i", [command if command_fd is None else command_fd, *others])
        connection.sendmsg(
            [packet], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors.tobytes())]
        )

    def attach(
        self,
        *,
        hold: bool = False,
        job_class: int = 2,
        peers: Sequence[Attached] = (),
        clock: int = MONOTONIC,
        sms: Mapping[str, int] | None = None,
    ) -> Attached:
        """Attach the next process, after telling it of its `peers` and its set."""

        def say(connection: socket.socket) -> _native.Process:
            process = self._process(
                hold=hold, job_class=job_class, peers=peers, clock=clock, sms=sms
            )
            for index, peer in enumerate(peers):
                peer.introduce_to(connection, index)
            self.welcome(connection, process, clock=clock)
            return process

        connection, hello, process = self.answer(say)
        return Attached(connection, hello, process, clock=clock)

    def _process(
        self,
        *,
        hold: bool,
        job_class: int,
        peers: Sequence[Attached],
        clock: int,
        sms: Mapping[str, int] | None,
    ) -> _native.Process:
        """Make its pages, as they are before the WELCOME."""
        process = _native.Process(process_id=41, job_id=1)
        process.set_class(job_class=job_class)
        process.set_presence_mask(mask=(1 << len(peers)) - 1)
        process.set_flags(honour_presence=True, telemetry=True)
        process.set_stale(stale_ns=LONGEST_STALE_NS)  # a descheduled test is no hung daemon
        process.stamp(tick_ns=monotonic_ns() if clock == MONOTONIC else 0)
        process.set_gate(hold=hold)
        if sms is not None:
            process.set_sms(**sms)
        return process

    def has_caller(self) -> bool:
        """Tell whether a connection waits to be accepted."""
        return bool(select.select([self._listener], [], [], 0)[0])

    def close(self) -> None:
        """Close everything and remove the socket."""
        for connection in (*self._connections, self._listener):
            connection.close()
        self.path.unlink(missing_ok=True)


class CommandPage:
    """A command page with a valid header, which a test may fill with anything."""

    def __init__(self, process: _native.Process) -> None:
        self.fd = os.memfd_create("command", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, COMMAND_BYTES)
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        self._page = mmap.mmap(self.fd, COMMAND_BYTES)
        with mmap.mmap(process.fds[0], COMMAND_BYTES, prot=mmap.PROT_READ) as original:
            self._page[:] = original[:]

    def fill(self, garbage: bytes) -> None:
        """Overwrite everything but the header."""
        self._page[HEADER_BYTES:] = garbage.ljust(COMMAND_BYTES, b"\0")[HEADER_BYTES:]


class Attached:
    """One attached process as the daemon sees it."""

    def __init__(
        self,
        connection: socket.socket,
        hello: _native.Hello,
        process: _native.Process,
        *,
        clock: int,
    ) -> None:
        self.connection = connection
        self.hello = hello
        self.process = process
        self.now_ns = monotonic_ns  # the attach clock
        self._orders = 0
        self.poller = _native.Poller()
        self._kept: list[tuple[int, bytes]] | None = None  # records, once somebody wants them
        self._polled_ns = 0
        if clock == MONOTONIC:
            self._poll()
        self.poller.add(process, group=1)

    def introduce_to(self, other: socket.socket, index: int) -> None:
        """Show this process's presence to another one."""
        packet = _native.encode_presence(index=index, job_class=1)
        descriptors = array.array("i", [self.process.fds[2]])
        other.sendmsg([packet], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors.tobytes())])

    def give_pool(self, count: int, *, comes: bool = True) -> int:
        """Give the job a host pool of that many bytes, for moved-out pages; return its descriptor.

        With `comes` false the kernel drops the descriptor, because the job has as many as it may
        have.
        """
        fd = os.memfd_create("pool", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, count)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        self._send(_native.encode_host_pool(bytes=count), fd if comes else None)
        return fd

    @property
    def newest_order(self) -> int:
        """The number of the newest order."""
        return self._orders

    def offer_file(self, pool: int, fd: int | None, *, since: int | None = None) -> int:
        """Offer a file for that pool, or one that does not arrive; return the order's number.

        `since`: the order that was the newest when the copy began; by default the newest now.
        """
        since = self._orders if since is None else since
        self._orders += 1
        packet = _native.encode_host_file(order=self._orders, since=since, pool=pool)
        self._send(packet, fd)
        return self._orders

    def ask_back(self, pool: int, *, since: int | None = None) -> int:
        """Ask for that pool back; return the order's number. `since` is as in `offer_file`."""
        since = self._orders if since is None else since
        self._orders += 1
        self._send(_native.encode_host_back(order=self._orders, since=since, pool=pool), None)
        return self._orders

    def _send(self, packet: bytes, fd: int | None) -> None:
        rights = [] if fd is None else [array.array("i", [fd]).tobytes()]
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, each) for each in rights]
        self.connection.sendmsg([packet], ancillary)

    def order(self, target: int) -> int:
        """Order at most `target` bytes on the device; return the order's number."""
        self._orders += 1
        self.process.set_resident_target(bytes=target, order=self._orders)
        self.say_order()
        return self._orders

    def say_order(self) -> None:
        """Tell the process to look at its order."""
        self.connection.send(_native.encode_swap())

    def snapshot(self) -> _native.Snapshot:
        """Return the state page as it is now."""
        self._poll()
        return self.poller.snapshots()[0]

    def until(self, wanted: str, value: object) -> _native.Snapshot:
        """Poll until a figure of the snapshot has a value; only the test's timeout ends a miss."""
        while getattr(snapshot := self.snapshot(), wanted) != value:
            time.sleep(NAP_S)
        return snapshot

    def until_in_use(self) -> None:
        """Wait until the helper has run: from then on a re-attached process uses its channel."""
        while self.snapshot().helper_tick_ns == 0:
            time.sleep(NAP_S)

    def keep_records(self) -> None:
        """Keep records from now on; else the first call of `records` only begins to keep them."""
        self._kept = self.poller.drain_records()

    def records(self) -> list[bytes]:
        """Return the records since the last call."""
        self._poll()
        found = self.poller.drain_records() if self._kept is None else self._kept
        self._kept = []
        packed = b"".join(data for _, data in found)
        return [packed[i : i + RECORD_BYTES] for i in range(0, len(packed), RECORD_BYTES)]

    def _poll(self) -> None:
        """Poll as a daemon would that was never late.

        The poller keeps records only for a reader that asked within the last seconds of the clock.
        Those seconds may have passed if this process was descheduled, and virtual ones pass
        quickly.
        """
        now_ns = self.now_ns()
        while self._kept is not None and now_ns - self._polled_ns > LONGEST_ROUND_NS:
            self._poll_at(self._polled_ns + LONGEST_ROUND_NS)
        self._poll_at(now_ns)

    def _poll_at(self, now_ns: int) -> None:
        self.poller.poll(now_ns=now_ns)
        self._polled_ns = now_ns
        if self._kept is not None:
            self._kept += self.poller.drain_records()


def monotonic_ns() -> int:
    """Return the time of the attach clock."""
    return time.monotonic_ns()
