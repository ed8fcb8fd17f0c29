"""SIGTERM and SIGHUP end what cleans up after itself, or keeps what it has, like Ctrl-C."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Unwind by SystemExit(128 + signal) where the process would have ended without a word.

    What was ignored before (nohup) stays so. For the main thread: in another nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are not ours
        return

    def end(number: int, _frame: FrameType | None) -> None:
        for other in before:
            signal.signal(other, signal.SIG_IGN)  # not again, amid the unwinding
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
