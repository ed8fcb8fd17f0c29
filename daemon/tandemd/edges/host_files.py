"""Files for what processes have on the host, where its memory does not suffice.

A file has no name, belongs to the daemon alone (0600), and is as long as it will ever be before
the first byte is written: a disk that is full says so while everything is still in memory. Bytes
go past the page cache where the file system lets them. A process gets the file for reading only,
and has its bytes back without the daemon; the kernel takes the file away with the last who has it.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import structlog

from tandem.errors import UsageError
from tandemd.edges.worker import Worker

log = structlog.get_logger(__name__)

CHUNK = 8 << 20
PREFIX = "tandem-home-"  # of a file that has a name for a moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """A file with what was in memory; both descriptors are the taker's."""

    file: int
    reader: int  # the same file, only to be read


Taker = Callable[[Copied | str], None]  # a string: why there is none


def require_directory(directory: Path) -> None:
    """See to it that there is such a directory, whoever may write there.

    Raises:
        UsageError: there is not.
    """
    if not directory.is_dir():
        raise UsageError(f"memory.swap_dir: '{directory}' is not a directory")


class HostFiles:
    """Makes files in one directory, one after the other, on a thread of its own."""

    def __init__(
        self,
        directory: Path,
        *,
        post: Callable[[Callable[[], None]], None],
        at_once: bool,
        write: Callable[[int, memoryview, int], int] = os.pwrite,
    ) -> None:
        """`post` runs something on the loop's thread; `at_once`: no other thread is used.

        `write` puts bytes into a file at an offset, as `os.pwrite`.

        Raises:
            UsageError: no file can be made in the directory.
        """
        self._directory = directory
        self._post = post
        self._worker = Worker("host-files", at_once=at_once)
        self._write = write
        require_directory(directory)
        try:
            os.close(self._make())
            for left in directory.glob(f"{PREFIX}*"):  # of a daemon that was killed just then
                left.unlink()
        except OSError as error:
            raise UsageError(
                f"memory.swap_dir: no file can be made in '{directory}': {error.strerror}"
            ) from error

    def want(self, memory: int, count: int, taker: Taker) -> Callable[[], None]:
        """Copy the first `count` bytes of the sealed memfd `memory`, which stays the caller's.

        `taker` is called on the loop's thread, later, also when the returned function was called,
        which ends the copying.
        """
        cancelled = threading.Event()
        try:
            own = os.dup(memory)
        except OSError as error:  # users can use descriptors up
            why_not = f"no file for it: {error.strerror}"
            self._post(lambda: taker(why_not))
            return cancelled.set

        def errand() -> None:
            answer = self._answer(own, count, cancelled)
            self._post(lambda: taker(answer))

        self._worker.do(errand)
        return cancelled.set

    def _answer(self, memory: int, count: int, cancelled: threading.Event) -> Copied | str:
        try:
            file = self._copy(memory, count, cancelled)
        except OSError as error:
            return f"no file of {count >> 20} MiB in swap_dir: {error.strerror}"
        except Exception:  # whoever waits for it has to hear something
            log.exception("no file for a job's pages", bytes=count)
            return f"no file of {count >> 20} MiB in swap_dir: the daemon's log says why"
        finally:
            os.close(memory)
        try:
            return Copied(file=file, reader=_for_reading(file))
        except OSError as error:
            os.close(file)
            return f"its file cannot be handed over: {error.strerror}"

    def _copy(self, memory: int, count: int, cancelled: threading.Event) -> int:
        file = self._make()
        try:
            os.posix_fallocate(file, 0, count)
            for at in range(0, count, CHUNK):
                if cancelled.is_set():
                    break  # nobody takes it
                # Not all at once: nobody else in the daemon goes on while a map is taken away.
                size = min(CHUNK, count - at)
                with (
                    mmap.mmap(memory, size, prot=mmap.PROT_READ, offset=at) as there,
                    memoryview(there) as chunk,
                ):
                    self._put(file, chunk, at)
            os.fdatasync(file)  # what the disk does not take is known now
        except BaseException:
            os.close(file)
            raise
        return file

    def _put(self, file: int, chunk: memoryview, at: int) -> None:
        done = 0
        while done < len(chunk):
            with chunk[done:] as left:
                done += self._write(file, left, at + done)

    def _make(self) -> int:
        flags = os.O_RDWR | os.O_CLOEXEC
        for direct in (os.O_DIRECT, 0):  # not every file system can
            with contextlib.suppress(OSError):
                return os.open(self._directory, flags | os.O_TMPFILE | direct, 0o600)
        file, name = tempfile.mkstemp(prefix=PREFIX, dir=self._directory)
        os.unlink(name)
        return file


def _for_reading(file: int) -> int:
    direct = fcntl.fcntl(file, fcntl.F_GETFL) & os.O_DIRECT
    return os.open(f"/proc/self/fd/{file}", os.O_RDONLY | os.O_CLOEXEC | direct)
