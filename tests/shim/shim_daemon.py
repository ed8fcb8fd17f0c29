"""A daemon's side of the attach socket, driven step by step by a test, and a job to drive."""

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
LONGEST_STALE_NS = 10**10  # that a shim believes; of more it makes its own two seconds
LONGEST_ROUND_NS = 4 * 10**9  # below RecordBuffer::kInterestNs
SLOTS_OFFSET = 4096
NAP_S = 0.002  # between two looks at what another process writes: this one shall not burn a core
MONOTONIC, VIRTUAL = 0, 1  # wire::ClockKind
# From Python 3.12 on it warns of a fork beside other threads, and the shim's helper is one.
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
        """Take it in with its first launch, which is done by then."""
        self.start("launch()")
        attached = daemon.attach()
        self.result()
        return attached

    def start(self, expression: str) -> None:
        """Begin evaluating; `result` waits for it."""
        assert self._process.stdin
        self._process.stdin.write(expression + "\n")
        self._process.stdin.flush()

    def result(self) -> object:
        """What the last expression came to."""
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert line, self.end()
        return eval(line)

    def do(self, expression: str) -> object:
        """Evaluate and wait."""
        self.start(expression)
        return self.result()

    def end(self) -> str:
        """Close its input, wait for a clean exit, return what it wrote to stderr."""
        out, err = self._process.communicate(timeout=20)
        assert self._process.returncode == 0, (self._process.returncode, out, err)
        return err

    def wait(self) -> int:
        """Its exit status, once it ended by itself."""
        self._process.communicate(timeout=20)
        return self._process.returncode

    def ended_by(self, signal: int, *, within_s: float) -> bool:
        """Send it a signal; whether it has ended soon after."""
        self._process.send_signal(signal)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(within_s)
        return self._process.returncode is not None

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


class FakeDaemon:
    """Listens on attach.sock of a folder; a test accepts, answers and moves the command page."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "attach.sock"
        self.features: int | None = None  # of WELCOME, when not those of today's daemon
        self.swappable = False  # what WELCOME says of the process
        self.path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(self.path))
        self._listener.listen(8)
        self._listener.settimeout(20)
        self._connections: list[socket.socket] = []

    def accept(self) -> tuple[socket.socket, _native.Hello]:
        """The next connection and its HELLO."""
        connection, _ = self._listener.accept()
        connection.settimeout(20)
        self._connections.append(connection)
        hello = _native.decode(connection.recv(4096))
        assert isinstance(hello, _native.Hello)
        return connection, hello

    def answer(
        self, say: Callable[[socket.socket], Said]
    ) -> tuple[socket.socket, _native.Hello, Said]:
        """The next connection that hears it.

        A shim does not wait for ever: who was late takes the next of its attempts.
        """
        while True:
            connection, hello = self.accept()
            with contextlib.suppress(ConnectionError):
                return connection, hello, say(connection)

    def refuse_unread(self, packet: bytes) -> None:
        """Say this to the next connection that hears it and hang up, its HELLO unread."""
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
        """WELCOME with three memfds, or another first one; returns when the shim said MAPPED."""
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
        """WELCOME, without waiting for what the shim makes of it."""
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
        """Take the next process in; it hears of `peers` before its welcome, and of its set."""

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
        """Its pages, as they are before it is welcome."""
        process = _native.Process(process_id=41, job_id=1)
        process.set_class(job_class=job_class)
        process.set_presence_mask(mask=(1 << len(peers)) - 1)
        process.set_flags(honour_presence=True, telemetry=True)
        process.set_stale(stale_ns=LONGEST_STALE_NS)  # a test that is set aside is no hung daemon
        process.stamp(tick_ns=monotonic_ns() if clock == MONOTONIC else 0)
        process.set_gate(hold=hold)
        if sms is not None:
            process.set_sms(**sms)
        return process

    def has_caller(self) -> bool:
        """Whether somebody connected who was not accepted yet."""
        return bool(select.select([self._listener], [], [], 0)[0])

    def close(self) -> None:
        """Close everything and take the socket away."""
        for connection in (*self._connections, self._listener):
            connection.close()
        self.path.unlink(missing_ok=True)


class CommandPage:
    """A command page with a proper header that a test may fill with anything."""

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
        self.now_ns = monotonic_ns  # of the attach clock
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
        """A host pool of that many bytes, for pages that are moved out; its descriptor.

        One that does not come was left by the kernel: the job has as many as it may have.
        """
        fd = os.memfd_create("pool", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, count)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        self._send(_native.encode_host_pool(bytes=count), fd if comes else None)
        return fd

    @property
    def newest_order(self) -> int:
        """The number of it."""
        return self._orders

    def offer_file(self, pool: int, fd: int | None, *, since: int | None = None) -> int:
        """A file for the pool with that number, or one that does not come; the order's number.

        `since`: the order that was the newest when the copy was begun; now, if not said.
        """
        since = self._orders if since is None else since
        self._orders += 1
        packet = _native.encode_host_file(order=self._orders, since=since, pool=pool)
        self._send(packet, fd)
        return self._orders

    def ask_back(self, pool: int, *, since: int | None = None) -> int:
        """Want the pool with that number back; the order's number. `since` as for a file."""
        since = self._orders if since is None else since
        self._orders += 1
        self._send(_native.encode_host_back(order=self._orders, since=since, pool=pool), None)
        return self._orders

    def _send(self, packet: bytes, fd: int | None) -> None:
        rights = [] if fd is None else [array.array("i", [fd]).tobytes()]
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, each) for each in rights]
        self.connection.sendmsg([packet], ancillary)

    def order(self, target: int) -> int:
        """Have no more than `target` bytes on the device; the order's number."""
        self._orders += 1
        self.process.set_resident_target(bytes=target, order=self._orders)
        self.say_order()
        return self._orders

    def say_order(self) -> None:
        """Have the process look at its order."""
        self.connection.send(_native.encode_swap())

    def snapshot(self) -> _native.Snapshot:
        """The state page as it is now."""
        self._poll()
        return self.poller.snapshots()[0]

    def until(self, wanted: str, value: object) -> _native.Snapshot:
        """Look until a figure of the snapshot has a value; the test's own time-out ends a miss."""
        while getattr(snapshot := self.snapshot(), wanted) != value:
            time.sleep(NAP_S)
        return snapshot

    def until_in_use(self) -> None:
        """Look until the helper thread has: a re-attached process uses its channel from then on."""
        while self.snapshot().helper_tick_ns == 0:
            time.sleep(NAP_S)

    def keep_records(self) -> None:
        """From now on, for the first `records`; else only those after it are kept."""
        self._kept = self.poller.drain_records()

    def records(self) -> list[bytes]:
        """Records since the last call."""
        self._poll()
        found = self.poller.drain_records() if self._kept is None else self._kept
        self._kept = []
        packed = b"".join(data for _, data in found)
        return [packed[i : i + RECORD_BYTES] for i in range(0, len(packed), RECORD_BYTES)]

    def _poll(self) -> None:
        """A round of a daemon that was never late.

        The poller keeps records for who asked in the last seconds of the clock. These may be over
        where this process was set aside, and virtual ones soon are.
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
    """The attach clock."""
    return time.monotonic_ns()
