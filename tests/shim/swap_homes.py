"""What a daemon keeps on the host for a process whose memory is moved: pools of memory, and files.

Whatever the process has no business to read any more is spoilt: a pool that is given back, or whose
place a file has taken, and the file that was not taken.
"""

from __future__ import annotations

import os
import random
import tempfile
from pathlib import Path

from swap_moves import MIB, OUTCOMES, Daemon

SIZES = (4 * MIB, 8 * MIB)  # of pools; which is not always enough
SPOILT = b"\xa5" * max(SIZES)

Identity = tuple[int, int]


class Homes:
    """Of one process, which is this one."""

    def __init__(self, daemon: Daemon, folder: Path, rng: random.Random) -> None:
        self._daemon = daemon
        self._folder = folder
        self._rng = rng
        self._given = 0
        self.pools: dict[int, int] = {}  # number, as the process counts -> descriptor; in memory
        self._taken: set[Identity] = set()  # files that it has
        self.give_missing()

    def give_missing(self) -> None:
        """Memory anew, of all the sizes that there should be."""
        there = [os.fstat(pool).st_size for pool in self.pools.values()]
        for size in SIZES:
            if size not in there:
                self._given += 1
                self.pools[self._given] = self._daemon.job.give_pool(size)

    def offer(self, *, since: int | None = None) -> str:
        """What the process says to a file for one of the pools, copied since that order."""
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
        """What the process says to who wants one of the pools back."""
        number = self._any_pool()
        order = self._daemon.job.ask_back(number, since=since)
        outcome = OUTCOMES[self._daemon.until("swap_done", order).swap_outcome]
        if outcome == "reached":
            self._drop(number)
        return outcome

    def offer_last(self) -> None:
        """A file, and nobody waits for the answer: it and the pool have to stay as they are."""
        number = self._any_pool()
        with tempfile.TemporaryFile(dir=self._folder, buffering=0) as file:
            self._copy(number, file.fileno())
            self._send(number, file.fileno(), since=None)

    def has_pools(self) -> bool:
        """Whether there is one that a file could take the place of."""
        return bool(self.pools)

    def held_files(self) -> list[int]:
        """The process's own descriptors of files that it has taken."""
        return [fd for fd in descriptors() if identity(fd) in self._taken]

    def forget_files(self) -> None:
        """Everything is back, so that it has none."""
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
    """Which file a descriptor is of; None: it is not open."""
    try:
        about = os.fstat(fd)
    except OSError:
        return None
    return about.st_dev, about.st_ino


def descriptors() -> list[int]:
    """All of this process, and perhaps one that is not open any more."""
    return [int(name) for name in os.listdir("/proc/self/fd")]
