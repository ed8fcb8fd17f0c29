"""A thread for what takes too long for the loop's: errands, one after the other."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

import structlog

log = structlog.get_logger(__name__)


class Worker:
    """Begins its thread with the first errand, or before. `do` and `begin` are for any thread.

    Not an executor of `concurrent.futures`: the interpreter would wait for its thread at the end,
    and a file of some gigabytes that nobody will take is not worth that.
    """

    def __init__(self, name: str, *, at_once: bool) -> None:
        """`at_once`: whoever has an errand does it (virtual clock, where a run has to repeat)."""
        self._name = name
        self._at_once = at_once
        self._errands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._beginning = threading.Lock()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Have the thread: nothing is in the way of an errand after that.

        Raises:
            RuntimeError: there can be no more threads; there may be later.
        """
        with self._beginning:
            if self._thread is None and not self._at_once:
                thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                thread.start()
                self._thread = thread

    def do(self, errand: Callable[[], None]) -> None:
        """Run it behind those before it; an error of it is logged, and the next one is run.

        Raises:
            RuntimeError: it is the first, and there can be no thread for it: it is not run.
        """
        if self._at_once:
            self._try(errand)
            return
        if self._thread is None:
            self.begin()
        self._errands.put(errand)

    def finish(self, timeout_s: float) -> None:
        """Wait until all errands so far are done, for so long at most."""
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
        except Exception:  # the next one may be somebody else's
            log.exception("an errand failed, continuing with the next", thread=self._name)
