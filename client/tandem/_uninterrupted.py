"""Calls that Ctrl-C must not interrupt halfway."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

_Result = TypeVar("_Result")


def uninterrupted(begin: Callable[[], _Result]) -> _Result:
    """Return or raise what `begin` does, which must end soon; Ctrl-C ends only the wait for it.

    Python runs signal handlers only in the main thread, so the call is made in another. If a stream
    is interrupted between the call and the start of gRPC's own thread, nobody reports its end, and
    closing its channel then waits for ever.
    """
    if threading.current_thread() is not threading.main_thread():
        return begin()
    outcome: Future[_Result] = Future()
    threading.Thread(target=_tell, args=(begin, outcome), name="tandem call", daemon=True).start()
    return outcome.result()


def _tell(begin: Callable[[], _Result], outcome: "Future[_Result]") -> None:
    try:
        outcome.set_result(begin())
    except BaseException as exc:  # raised again by the waiting thread
        outcome.set_exception(exc)
