"""A process that opens memory of a process whose memory is moved, and does what that one asks for.

It is forked before there is a device, and has its own daemon. It ends with its owner, the process
it belongs to. What it still has open must then hold what the owner told it to expect, else it ends
with 1.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

from cuda.bindings import driver as cu
from memory_limits import ok
from swap_moves import Daemon

LAZY = cu.CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS


class Opener:
    """An opener, as its owner sees it."""

    def __init__(self, folder: Path, earlier: Sequence[Opener]) -> None:
        """Fork the opener, which must not keep this process's connections to the `earlier` ones."""
        self._ours, theirs = Pipe()
        self.pid = os.fork()
        if self.pid == 0:
            for each in (*earlier, self):
                each.let_go()
            os._exit(Work(theirs, folder).run())
        theirs.close()
        self.opened: dict[int, bytearray] = {}  # the opener's address -> what is there
        self.of: dict[int, int] = {}  # the owner's address -> the opener's

    def let_go(self) -> None:
        """Drop the connection, in a process that is not the owner."""
        self._ours.close()

    def ask(self, *question):
        """Return the opener's answer. Time passes meanwhile."""
        self._ours.send(question)
        clock = ctypes.CDLL("libcuda.so.1")
        clock.softgpu_wait_begin()
        answer = self._ours.recv()
        clock.softgpu_wait_end()
        return answer

    def open(self, handle: bytes, address: int, model: bytearray) -> str:
        """Let it open the allocation at `address`; return the driver's answer."""
        answer, its_own = self.ask("open", handle)
        if answer == "CUDA_SUCCESS":
            self.of[address] = its_own
            self.opened[its_own] = model
        return answer

    def compare(self, its_own: int) -> None:
        """Check that it finds what the model says."""
        model = self.opened[its_own]
        found = self.ask("read", its_own, len(model))
        assert found == model, f"{len(model)} shared bytes are not what was written"

    def write(self, its_own: int, begin: int, content: bytes) -> None:
        """Let it write there."""
        self.ask("write", its_own + begin, content)
        self.opened[its_own][begin : begin + len(content)] = content

    def close(self, its_own: int) -> None:
        """Let it close that."""
        assert self.ask("close", its_own) == "CUDA_SUCCESS"
        del self.opened[its_own]
        self.forget(its_own)

    def forget(self, its_own: int) -> None:
        """Forget an allocation that the owner has freed or the opener has closed."""
        self.of = {owner: own for owner, own in self.of.items() if own != its_own}

    def expect(self) -> int:
        """Tell it what must be there when its owner is gone; return the number of allocations."""
        self.ask("expect", {at: bytes(model) for at, model in self.opened.items()})
        return len(self.opened)

    def kill(self) -> None:
        """Kill it, with everything it has open."""
        os.kill(self.pid, signal.SIGKILL)


class Work:
    """The opener's side."""

    def __init__(self, connection: Connection, folder: Path) -> None:
        self._connection = connection
        self._folder = folder
        self._daemon: Daemon | None = None
        self._expected: dict[int, bytes] = {}

    def run(self) -> int:
        """Answer until the owner is gone, then check what must be left; return an exit code."""
        while True:
            try:
                question, *rest = self._hear()
            except EOFError:
                break
            self._connection.send(getattr(self, question)(*rest))
        for address, content in self._expected.items():
            if self.read(address, len(content)) != content:
                print(f"{len(content)} bytes went with their owner", file=sys.stderr)
                return 1
        return 0

    def _hear(self):
        if self._daemon is None:
            return self._connection.recv()
        clock = ctypes.CDLL("libcuda.so.1")
        clock.softgpu_wait_begin()
        try:
            return self._connection.recv()
        finally:
            clock.softgpu_wait_end()

    def open(self, handle: bytes):
        """Return the driver's answer and the address."""
        self._begin()
        given = cu.CUipcMemHandle()
        ctypes.memmove(given.getPtr(), handle, len(handle))
        status, address = cu.cuIpcOpenMemHandle(given, LAZY)
        return status.name, int(address or 0)

    def read(self, address: int, size: int) -> bytes:
        """Return the bytes there."""
        host = bytearray(size)
        ok(cu.cuMemcpyDtoH(host, address, size))
        return bytes(host)

    def write(self, address: int, content: bytes) -> None:
        """Write the bytes there."""
        ok(cu.cuMemcpyHtoD(address, content, len(content)))
        ok(cu.cuCtxSynchronize())

    def close(self, address: int) -> str:
        """Return the driver's answer."""
        return cu.cuIpcCloseMemHandle(address)[0].name

    def expect(self, expected: dict[int, bytes]) -> None:
        """Note what must be there in the end."""
        self._expected = expected

    def _begin(self) -> None:
        if self._daemon is not None:
            return
        self._folder.mkdir(exist_ok=True)
        os.environ["TANDEM_RUNTIME_DIR"] = str(self._folder)
        ok(cu.cuInit(0))
        self._daemon = Daemon(self._folder, swappable=False)
