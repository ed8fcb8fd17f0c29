"""Tells a program that other jobs wait for the device memory that it could do without."""

import threading
from collections.abc import Callable

from tandem import _marks

AGAIN_PERIODS = 10  # as long as memory is wanted, ask again after so many looks


class MemoryWatch:
    """Looks whether memory is wanted, on a thread of its own, until closed. Thread-safe."""

    def __init__(self, callback: Callable[[], object], *, period_s: float) -> None:
        """Begin to look every `period_s` seconds."""
        self._callback = callback
        self._period_s = period_s
        self._closed = threading.Event()
        self._told: set[type[Exception]] = set()
        self._thread = threading.Thread(target=self._run, name="tandem-memory", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Look no more; a call that is under way ends first, unless it is what closes."""
        self._closed.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def __enter__(self) -> "MemoryWatch":
        """The watch itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def _run(self) -> None:
        since = 0  # looks that found memory wanted, in a row
        while not self._closed.wait(self._period_s):
            since = since + 1 if _marks.memory_is_wanted() else 0
            if since % AGAIN_PERIODS == 1:
                self._call()

    def _call(self) -> None:
        try:
            self._callback()
        except Exception as error:  # the next time it may do better, and others still wait
            if type(error) not in self._told:
                self._told.add(type(error))
                tell(error)


def on_memory_pressure(callback: Callable[[], object], *, period_s: float = 0.1) -> MemoryWatch:
    """Call `callback` when another job waits for device memory, and again as long as one does.

        watch = tandem.on_memory_pressure(torch.cuda.empty_cache)

    It is called on a thread of the client, which looks every `period_s` seconds; while memory is
    wanted, every tenth look. An exception in it is told as in any thread, once of a
    type, and it is called again all the same. Outside the shim
    it is never called.

    Raises:
        TypeError: `callback` cannot be called.
        ValueError: `period_s` is not positive.
    """
    check_callback(callback)
    if not period_s > 0:
        raise ValueError(f"period_s must be positive, not {period_s}")
    return MemoryWatch(callback, period_s=period_s)


def check_callback(callback: object) -> None:
    """Say at once what would be found when it is called.

    Raises:
        TypeError: it cannot be called.
    """
    if not callable(callback):
        raise TypeError(f"the callback is to be called, and {callback!r} cannot be")


def tell(error: BaseException) -> None:
    """Of a callback, as Python does for one that ends a thread: but this one goes on."""
    told = (type(error), error, error.__traceback__, threading.current_thread())
    threading.excepthook(threading.ExceptHookArgs(told))
