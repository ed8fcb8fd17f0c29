"""Another process that opens the memory of one whose memory is moved, and does what that asks for.

It is forked before there is a device, and has a daemon of its own. It ends with the process that it
belongs to; what it still has open has to hold what it was told by then, or it ends with 1.
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
    """It, as the other process sees it."""

    def __init__(self, folder: Path, earlier: Sequence[Opener]) -> None:
        """Forks; what this process has of the `earlier` ones is not the new one's."""
        self._ours, theirs = Pipe()
        self.pid = os.fork()
        if self.pid == 0:
            for each in (*earlier, self):
                each.let_go()
            os._exit(Work(theirs, folder).run())
        theirs.close()
        self.opened: dict[int, bytearray] = {}  # its address -> what is there
        self.of: dict[int, int] = {}  # the owner's address -> its own

    def let_go(self) -> None:
        """This process is not the one that it belongs to."""
        self._ours.close()

    def ask(self, *question):
        """Its answer. Time passes meanwhile."""
        self._ours.send(question)
        clock = ctypes.CDLL("libcuda.so.1")
        clock.softgpu_wait_begin()
        answer = self._ours.recv()
        clock.softgpu_wait_end()
        return answer

    def open(self, handle: bytes, address: int, model: bytearray) -> str:
        """Have it open the allocation at `address`; what it is told."""
        answer, its_own = self.ask("open", handle)
        if answer == "CUDA_SUCCESS":
            self.of[address] = its_own
            self.opened[its_own] = model
        return answer

    def compare(self, its_own: int) -> None:
        """It finds what the model says."""
        model = self.opened[its_own]
        found = self.ask("read", its_own, len(model))
        assert found == model, f"{len(model)} shared bytes are not what was written"

    def write(self, its_own: int, begin: int, content: bytes) -> None:
        """Have it write there."""
        self.ask("write", its_own + begin, content)
        self.opened[its_own][begin : begin + len(content)] = content

    def close(self, its_own: int) -> None:
        """Have it let go of that."""
        assert self.ask("close", its_own) == "CUDA_SUCCESS"
        del self.opened[its_own]
        self.forget(its_own)

    def forget(self, its_own: int) -> None:
        """The owner has freed it, or it is closed."""
        self.of = {owner: own for owner, own in self.of.items() if own != its_own}

    def expect(self) -> int:
        """Tell it what has to be there when its owner is gone; how much that is."""
        self.ask("expect", {at: bytes(model) for at, model in self.opened.items()})
        return len(self.opened)

    def kill(self) -> None:
        """At once, with all that it has open."""
        os.kill(self.pid, signal.SIGKILL)


class Work:
    """What it does."""

    def __init__(self, connection: Connection, folder: Path) -> None:
        self._connection = connection
        self._folder = folder
        self._daemon: Daemon | None = None
        self._expected: dict[int, bytes] = {}

    def run(self) -> int:
        """Until its owner is gone."""
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
        """The driver's answer, and the address."""
        self._begin()
        given = cu.CUipcMemHandle()
        ctypes.memmove(given.getPtr(), handle, len(handle))
        status, address = cu.cuIpcOpenMemHandle(given, LAZY)
        return status.name, int(address or 0)

    def read(self, address: int, size: int) -> bytes:
        """What is there."""
        host = bytearray(size)
        ok(cu.cuMemcpyDtoH(host, address, size))
        return bytes(host)

    def write(self, address: int, content: bytes) -> None:
        """Put it there."""
        ok(cu.cuMemcpyHtoD(address, content, len(content)))
        ok(cu.cuCtxSynchronize())

    def close(self, address: int) -> str:
        """The driver's answer."""
        return cu.cuIpcCloseMemHandle(address)[0].name

    def expect(self, expected: dict[int, bytes]) -> None:
        """What has to be there in the end."""
        self._expected = expected

    def _begin(self) -> None:
        if self._daemon is not None:
            return
        self._folder.mkdir(exist_ok=True)
        os.environ["TANDEM_RUNTIME_DIR"] = str(self._folder)
        ok(cu.cuInit(0))
        self._daemon = Daemon(self._folder, swappable=False)
