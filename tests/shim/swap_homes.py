"""A daemon's host homes for a process whose memory is moved: pools of memory, and files.

Whatever the process must not read any more is overwritten: a pool that is given back or replaced by
a file, and a file that the process did not take.
"""

from __future__ import annotations

import os
import random
import tempfile
from pathlib import Path

from swap_moves import MIB, OUTCOMES, Daemon

SIZES = (4 * MIB, 8 * MIB)  # of pools; not always enough
SPOILT = b"\xa5" * max(SIZES)

Identity = tuple[int, int]


class Homes:
    """The homes of one process, which is this one."""

    def __init__(self, daemon: Daemon, folder: Path, rng: random.Random) -> None:
        self._daemon = daemon
        self._folder = folder
        self._rng = rng
        self._given = 0
        self.pools: dict[int, int] = {}  # the process's number -> descriptor; in memory
        self._taken: set[Identity] = set()  # files that the process has taken
        self.give_missing()

    def give_missing(self) -> None:
        """Give new pools for the sizes that are missing."""
        there = [os.fstat(pool).st_size for pool in self.pools.values()]
        for size in SIZES:
            if size not in there:
                self._given += 1
                self.pools[self._given] = self._daemon.job.give_pool(size)

    def offer(self, *, since: int | None = None) -> str:
        """Offer a file for one of the pools, copied since that order; return the answer."""
        number = self._any_pool()
        with tempfile.TemporaryFile(dir=self._folder, buffering=0) as file:
            self._copy(number, file.fileno())
            order = self._send(number, file.fileno(), since=since)
            seen = self._daemon.until("swap_done", order)
            outcome = OUTCOMES[seen.swap_outcome]
            if outcome == "reached":
                self._taken.add(identity(file.fileno()))
                self._drop(number)
            else:
                os.pwrite(file.fileno(), SPOILT, 0)
        return outcome

    def ask_back(self, *, since: int | None = None) -> str:
        """Ask for one of the pools back; return the process's answer."""
        number = self._any_pool()
        order = self._daemon.job.ask_back(number, since=since)
        outcome = OUTCOMES[self._daemon.until("swap_done", order).swap_outcome]
        if outcome == "reached":
            self._drop(number)
        return outcome

    def offer_last(self) -> None:
        """Offer a file without waiting for the answer, so it and the pool must stay as they are."""
        number = self._any_pool()
        with tempfile.TemporaryFile(dir=self._folder, buffering=0) as file:
            self._copy(number, file.fileno())
            self._send(number, file.fileno(), since=None)

    def has_pools(self) -> bool:
        """Tell whether there is a pool that a file could replace."""
        return bool(self.pools)

    def held_files(self) -> list[int]:
        """Return the process's own descriptors of the files it has taken."""
        return [fd for fd in descriptors() if identity(fd) in self._taken]

    def forget_files(self) -> None:
        """Note that all memory is back, so the process has no files."""
        assert not self.held_files(), "a file is kept though nothing lies in it"
        self._taken.clear()

    def _any_pool(self) -> int:
        return self._rng.choice(sorted(self.pools))

    def _drop(self, number: int) -> None:
        pool = self.pools.pop(number)
        about = os.fstat(pool)
        maps = Path("/proc/self/maps").read_text()
        assert f" {about.st_ino} " not in maps, "the host's memory is not given up"
        os.pwrite(pool, SPOILT[: about.st_size], 0)
        os.close(pool)

    def _copy(self, number: int, file: int) -> None:
        pool = self.pools[number]
        size, done = os.fstat(pool).st_size, 0
        while done < size:
            done += os.sendfile(file, pool, done, size - done)

    def _send(self, number: int, file: int, *, since: int | None) -> int:
        reader = os.open(f"/proc/self/fd/{file}", os.O_RDONLY | os.O_CLOEXEC)
        order = self._daemon.job.offer_file(number, reader, since=since)
        os.close(reader)
        return order


def identity(fd: int) -> Identity | None:
    """Return which file a descriptor refers to, or None if it is not open."""
    try:
        about = os.fstat(fd)
    except OSError:
        return None
    return about.st_dev, about.st_ino


def descriptors() -> list[int]:
    """Return all descriptors of this process, perhaps with one that is already closed."""
    return [int(name) for name in os.listdir("/proc/self/fd")]
