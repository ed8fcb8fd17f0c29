"""Tells a program when other jobs wait for device memory that it could release."""

import threading
from collections.abc import Callable

from tandem import _marks

AGAIN_PERIODS = 10  # while memory is wanted, call again after this many polls


class MemoryWatch:
    """Polls on its own thread whether memory is wanted, until closed. Thread-safe."""

    def __init__(self, callback: Callable[[], object], *, period_s: float) -> None:
        """Start polling every `period_s` seconds."""
        self._callback = callback
        self._period_s = period_s
        self._closed = threading.Event()
        self._told: set[type[Exception]] = set()
        self._thread = threading.Thread(target=self._run, name="tandem-memory", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop polling, and wait for a callback in progress unless that is the caller."""
        self._closed.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def __enter__(self) -> "MemoryWatch":
        """Return the watch itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def _run(self) -> None:
        since = 0  # consecutive polls that found memory wanted
        while not self._closed.wait(self._period_s):
            since = since + 1 if _marks.memory_is_wanted() else 0
            if since % AGAIN_PERIODS == 1:
                self._call()

    def _call(self) -> None:
        try:
            self._callback()
        except Exception as error:  # the next call may succeed, and others still wait
            if type(error) not in self._told:
                self._told.add(type(error))
                tell(error)


def on_memory_pressure(callback: Callable[[], object], *, period_s: float = 0.1) -> MemoryWatch:
    """Call `callback` when another job waits for device memory, and repeatedly while one does.

        watch = tandem.on_memory_pressure(torch.cuda.empty_cache)

    The callback runs on a thread of the client that polls every `period_s` seconds; while memory is
    wanted, it is called at every tenth poll. An exception in it is reported as in any thread, once
    for each type, and does not stop further calls. Outside the shim it is never called.

    Raises:
        TypeError: `callback` cannot be called.
        ValueError: `period_s` is not positive.
    """
    check_callback(callback)
    if not period_s > 0:
        raise ValueError(f"period_s must be positive, not {period_s}")
    return MemoryWatch(callback, period_s=period_s)


def check_callback(callback: object) -> None:
    """Fail early if a callback is not callable.

    Raises:
        TypeError: it is not callable.
    """
    if not callable(callback):
        raise TypeError(f"the callback is to be called, and {callback!r} cannot be")


def tell(error: BaseException) -> None:
    """Report a callback's exception as for one that ends a thread; here the thread goes on."""
    told = (type(error), error, error.__traceback__, threading.current_thread())
    threading.excepthook(threading.ExceptHookArgs(told))
