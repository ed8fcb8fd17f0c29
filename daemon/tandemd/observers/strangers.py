"""Processes that compute on our GPUs and are no job's: nothing holds them back, and nothing counts.

Whoever unsets LD_PRELOAD is one, what cannot be preloaded, and a job of another daemon. What the
daemon starts itself to try something is none, nor is MPS.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

import psutil
import structlog

from tandem import _mps
from tandemd.edges.peers import start_time

PATIENCE_S = 5.0  # with who is on its way to us: all jobs are when a daemon starts

log = structlog.get_logger()


class Strangers:
    """Belongs to the loop's thread."""

    def __init__(self) -> None:
        self._since_s: dict[tuple[int, int], float] = {}  # by GPU and pid
        self._told: frozenset[tuple[int, int]] = frozenset()
        self._asked: frozenset[int] = frozenset()  # GPUs of which it is known who is there
        # By pid and start of the process: to find out takes milliseconds.
        self._foreign: dict[tuple[int, float | None], bool] = {}

    def on(self, gpu: int) -> int | None:
        """How many; None: it is not known."""
        return sum(key[0] == gpu for key in self._told) if gpu in self._asked else None

    def look(
        self, running: Mapping[int, frozenset[int]] | None, ours: Collection[int], now_s: float
    ) -> None:
        """Take in who computes on which GPU, and whom of them we know.

        Args:
            running: pids on each GPU; None: the driver does not say.
            ours: pids of jobs.
            now_s: of any clock that does not go back.
        """
        if running is None:
            self._asked = frozenset()  # who was there before is so still, as far as is known
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
        process = pid, start_time(pid)  # the pid may be another's by now
        if process not in self._foreign:
            self._foreign[process] = is_foreign(pid)
        return self._foreign[process]


def is_foreign(pid: int) -> bool:
    """Whether it lives, and neither this daemon has started it nor is it a part of MPS."""
    try:
        parents = [process.pid for process in psutil.Process(pid).parents()]
    except psutil.Error:
        return False
    return os.getpid() not in parents and not _mps.is_running(pid)
