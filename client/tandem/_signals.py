"""SIGTERM and SIGHUP unwind like Ctrl-C, for commands that clean up or save what they have."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Raise SystemExit(128 + signal) where the signal would have ended the process silently.

    Signals that were ignored before (nohup) stay ignored. Has an effect only in the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can set handlers
        return

    def end(number: int, _frame: FrameType | None) -> None:
        for other in before:
            signal.signal(other, signal.SIG_IGN)  # no second exception while unwinding
        raise SystemExit(128 + number)

    wanted = (signal.SIGTERM, signal.SIGHUP)
    before = {n: h for n in wanted if (h := signal.getsignal(n)) is not signal.SIG_IGN}  # nohup
    for number in before:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
