"""Files for pages that processes keep on the host, for when host memory does not suffice.

A file has no name, belongs to the daemon alone (0600), and is allocated to its full length before
the first byte is written: a full disk fails while everything is still in memory. Writes bypass the
page cache where the file system allows it. A process gets the file for reading only, so it can
restore its bytes without the daemon. The kernel frees the file when its last holder closes it.
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
    """A file with a copy of memory; both descriptors belong to the taker."""

    file: int
    reader: int  # the same file, read-only


Taker = Callable[[Copied | str], None]  # a string says why there is none


def require_directory(directory: Path) -> None:
    """Check that the directory exists, writable or not.

    Raises:
        UsageError: it does not.
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

        `write` writes bytes into a file at an offset, as `os.pwrite`.

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
            # Left by a daemon that was killed at that moment.
            for left in directory.glob(f"{PREFIX}*"):
                left.unlink()
        except OSError as error:
            raise UsageError(
                f"memory.swap_dir: cannot create a file in '{directory}': {error.strerror}"
            ) from error

    def want(self, memory: int, count: int, taker: Taker) -> Callable[[], None]:
        """Copy the first `count` bytes of the sealed memfd `memory`, which stays the caller's.

        `taker` is called later on the loop's thread, even after the returned function, which
        cancels the copying, was called.
        """
        cancelled = threading.Event()
        try:
            own = os.dup(memory)
        except OSError as error:  # users can exhaust the descriptors
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
        except Exception:  # the waiting taker must get an answer
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
                    break  # nobody wants the file any more
                # In chunks, because unmapping blocks all other Python threads of the daemon.
                size = min(CHUNK, count - at)
                with (
                    mmap.mmap(memory, size, prot=mmap.PROT_READ, offset=at) as there,
                    memoryview(there) as chunk,
                ):
                    self._put(file, chunk, at)
            os.fdatasync(file)  # surfaces what the disk could not store
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
        for direct in (os.O_DIRECT, 0):  # not every file system supports it
            with contextlib.suppress(OSError):
                return os.open(self._directory, flags | os.O_TMPFILE | direct, 0o600)
        file, name = tempfile.mkstemp(prefix=PREFIX, dir=self._directory)
        os.unlink(name)
        return file


def _for_reading(file: int) -> int:
    direct = fcntl.fcntl(file, fcntl.F_GETFL) & os.O_DIRECT
    return os.open(f"/proc/self/fd/{file}", os.O_RDONLY | os.O_CLOEXEC | direct)
