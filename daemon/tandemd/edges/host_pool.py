"""Memory of the host for what processes move off the GPU: sealed memfds, filled beforehand.

Filling takes a second for some gigabytes, so it happens on a thread of its own; on the virtual
clock, where a run has to repeat, at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import queue
import threading
from collections.abc import Callable

import structlog

log = structlog.get_logger(__name__)

SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL

Taker = Callable[[int | None], None]  # gets a descriptor, which is the taker's from then on


class HostPools:
    """Makes them, in the order they were asked for."""

    def __init__(self, *, post: Callable[[Callable[[], None]], None], at_once: bool) -> None:
        """`post` runs something on the loop's thread; `at_once`: no other thread is used."""
        self._post = post
        self._at_once = at_once
        self._wanted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def want(self, count: int, taker: Taker) -> None:
        """Make `count` bytes; `taker` gets them on the loop's thread, or None if there are none."""
        if self._at_once:
            taker(_make(count))
            return

        def make() -> None:
            fd = _make(count)
            self._post(lambda: taker(fd))

        self._do(make)

    def drop(self, fd: int, *, emptied: bool) -> None:
        """Close it, which takes long where it is large; `emptied`: for whoever else has it, too."""
        if self._at_once:
            _drop(fd, emptied=emptied)
        else:
            self._do(lambda: _drop(fd, emptied=emptied))

    def _do(self, errand: Callable[[], None]) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="host-pool", daemon=True)
            self._thread.start()
        self._wanted.put(errand)

    def _run(self) -> None:
        while True:
            self._wanted.get()()


def _drop(fd: int, *, emptied: bool) -> None:
    if emptied:
        _empty(fd)
    os.close(fd)


def _empty(fd: int) -> None:
    try:
        os.ftruncate(fd, 0)
    except OSError:  # a sealed memfd keeps its length, and loses its pages
        with contextlib.suppress(OSError, ValueError), mmap.mmap(fd, 0) as pages:
            pages.madvise(mmap.MADV_REMOVE)


def _make(count: int) -> int | None:
    fd = os.memfd_create("tandem-host-pool", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.fchmod(fd, 0o600)
        os.ftruncate(fd, count)
        # Now: a page that cannot be had later would be a SIGBUS in the job.
        os.posix_fallocate(fd, 0, count)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
    except OSError as error:
        log.warning("no host memory for a job's pages", bytes=count, error=str(error))
        with contextlib.suppress(OSError):
            os.close(fd)
        return None
    return fd
