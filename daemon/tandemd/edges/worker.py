"""A thread for errands that would take too long on the loop's thread, one after the other."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

import structlog

log = structlog.get_logger(__name__)


class Worker:
    """Starts its thread with the first errand, or before. `do` and `begin` are for any thread.

    It is no executor of `concurrent.futures`: the interpreter would join the executor's thread at
    exit, and so wait, for instance, for a file of some gigabytes that nobody will take.
    """

    def __init__(self, name: str, *, at_once: bool) -> None:
        """`at_once`: the caller runs its errand itself (virtual clock: runs are reproducible)."""
        self._name = name
        self._at_once = at_once
        self._errands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._beginning = threading.Lock()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start the thread, so that no later errand can fail for lack of one.

        Raises:
            RuntimeError: no thread can be started now; this may change.
        """
        with self._beginning:
            if self._thread is None and not self._at_once:
                thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                thread.start()
                self._thread = thread

    def do(self, errand: Callable[[], None]) -> None:
        """Queue an errand; if it fails, the error is logged, and the next one is run.

        Raises:
            RuntimeError: it is the first and no thread can be started for it; it is not run.
        """
        if self._at_once:
            self._try(errand)
            return
        if self._thread is None:
            self.begin()
        self._errands.put(errand)

    def finish(self, timeout_s: float) -> None:
        """Wait until all errands so far are done, but no longer than `timeout_s`."""
        if self._thread is not None:
            done = threading.Event()
            self._errands.put(done.set)
            done.wait(timeout_s)

    def _run(self) -> None:
        while True:
            self._try(self._errands.get())

    def _try(self, errand: Callable[[], None]) -> None:
        try:
            errand()
        except Exception:  # the next errand may be somebody else's
            log.exception("a background task failed, continuing with the next", thread=self._name)
