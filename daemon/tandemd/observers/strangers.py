"""Processes that compute on our GPUs and belong to no job: they are neither held nor counted.

Examples are a program that unsets LD_PRELOAD or cannot be preloaded, and a job of another daemon.
MPS, and what the daemon itself starts for a test, are not among them.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

import psutil
import structlog

from tandem import _mps
from tandemd.edges.peers import start_time

PATIENCE_S = 5.0  # with processes that are about to attach, as all jobs are when a daemon starts

log = structlog.get_logger()


class Strangers:
    """Tracks strangers. Belongs to the loop's thread."""

    def __init__(self) -> None:
        self._since_s: dict[tuple[int, int], float] = {}  # by GPU and pid
        self._told: frozenset[tuple[int, int]] = frozenset()
        self._asked: frozenset[int] = frozenset()  # GPUs whose processes are known
        # By pid and start time of the process, because to find out takes milliseconds.
        self._foreign: dict[tuple[int, float | None], bool] = {}

    def on(self, gpu: int) -> int | None:
        """Return how many are on a GPU; None: not known."""
        return sum(key[0] == gpu for key in self._told) if gpu in self._asked else None

    def look(
        self, running: Mapping[int, frozenset[int]] | None, ours: Collection[int], now_s: float
    ) -> None:
        """Take in which processes compute on which GPU, and which of them are jobs'.

        Args:
            running: pids on each GPU; None: the driver does not say.
            ours: pids of jobs.
            now_s: of any monotonic clock.
        """
        if running is None:
            self._asked = frozenset()  # earlier ones presumably still run
            return
        self._asked, known_s = frozenset(running), self._since_s
        found = {(gpu, pid) for gpu, pids in running.items() for pid in pids if pid not in ours}
        self._since_s = {key: known_s.get(key, now_s) for key in found}
        told = frozenset(
            (gpu, pid)
            for (gpu, pid), since_s in self._since_s.items()
            if now_s - since_s >= PATIENCE_S and self._is_foreign(pid)
        )
        pids = {pid for _, pid in found}
        self._foreign = {key: known for key, known in self._foreign.items() if key[0] in pids}
        for gpu, pid in sorted(told - self._told):
            log.warning(
                "a process computes on a GPU without this daemon; see `tandem doctor`",
                gpu=gpu,
                pid=pid,
            )
        self._told = told

    def _is_foreign(self, pid: int) -> bool:
        process = pid, start_time(pid)  # the pid may have been reused
        if process not in self._foreign:
            self._foreign[process] = is_foreign(pid)
        return self._foreign[process]


def is_foreign(pid: int) -> bool:
    """Tell whether it lives, was not started by this daemon, and is no part of MPS."""
    try:
        parents = [process.pid for process in psutil.Process(pid).parents()]
    except psutil.Error:
        return False
    return os.getpid() not in parents and not _mps.is_running(pid)
