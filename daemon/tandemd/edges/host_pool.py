"""Pools of host memory for pages that processes move off the GPU.

Filling a pool takes a second for some gigabytes, so a thread of its own does it; on the virtual
clock, where a run must be reproducible, the caller does.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable

import structlog

from tandemd.edges.worker import Worker

log = structlog.get_logger(__name__)

_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # FALLOC_FL_.., <linux/falloc.h>

# Gets a descriptor, which it then owns, and the time that it took to make, in ns.
Taker = Callable[[int | None, int], None]


class HostPools:
    """Makes pools, in the order of the requests."""

    def __init__(
        self,
        *,
        make: Callable[[int, int | None], int],
        post: Callable[[Callable[[], None]], None],
        at_once: bool,
    ) -> None:
        """`make(count, node)` makes a sealed memfd, or raises OSError (host_memory.py).

        `post` runs something on the loop's thread; `at_once`: no other thread is used.
        """
        self._make = make
        self._post = post
        self._at_once = at_once
        self._worker = Worker("host-pool", at_once=at_once)

    def want(self, count: int, node: int | None, taker: Taker) -> None:
        """Make `count` bytes; `taker` gets them on the loop's thread, or None if there are none.

        `node` is the GPU's, if known. On the virtual clock this takes no time.
        """
        if self._at_once:
            taker(self._made(count, node), 0)
            return

        def make() -> None:
            began_ns = time.monotonic_ns()
            fd = self._made(count, node)
            took_ns = time.monotonic_ns() - began_ns
            self._post(lambda: taker(fd, took_ns))

        self._worker.do(make)

    def _made(self, count: int, node: int | None) -> int | None:
        began = time.monotonic()
        try:
            fd = self._make(count, node)
        except OSError as error:
            log.warning("no host memory for a job's pages", bytes=count, error=error.strerror)
            return None
        except Exception:  # the waiting taker must get an answer
            log.exception("no host memory for a job's pages", bytes=count)
            return None
        log.info(
            "host memory allocated",
            bytes=count,
            page_bytes=os.fstat(fd).st_blksize,
            node=node,
            seconds=round(time.monotonic() - began, 3),
        )
        return fd

    def drop(self, fd: int, *, emptied: bool) -> None:
        """Close `fd`, which is slow for a large one; `emptied` discards the contents for all."""
        self._worker.do(lambda: _drop(fd, emptied=emptied))


def _drop(fd: int, *, emptied: bool) -> None:
    if emptied:
        _empty(fd)
    os.close(fd)


def _empty(fd: int) -> None:
    try:
        os.ftruncate(fd, 0)
    except OSError:  # a sealed memfd keeps its length but loses its pages
        size = ctypes.c_int64(os.fstat(fd).st_size)
        ctypes.CDLL(None).fallocate(fd, _PUNCH_HOLE | _KEEP_SIZE, ctypes.c_int64(0), size)
