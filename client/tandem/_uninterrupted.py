"""Calls that an interrupt of the program must not cut in two."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

_Result = TypeVar("_Result")


def uninterrupted(begin: Callable[[], _Result]) -> _Result:
    """What `begin` returns or raises; it is over soon. Ctrl-C ends the wait for it, never the call.

    Handlers of signals run in the main thread alone, so the call is made in another. Cut between
    the call and the start of gRPC's own thread, a stream is one whose end nobody tells: closing its
    channel then waits for ever.
    """
    if threading.current_thread() is not threading.main_thread():
        return begin()
    outcome: Future[_Result] = Future()
    threading.Thread(target=_tell, args=(begin, outcome), name="tandem call", daemon=True).start()
    return outcome.result()


def _tell(begin: Callable[[], _Result], outcome: "Future[_Result]") -> None:
    try:
        outcome.set_result(begin())
    except BaseException as exc:  # whoever waits raises it
        outcome.set_exception(exc)
