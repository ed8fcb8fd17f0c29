"""What other threads want to know of the loop's thread, and wait for."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

ASK_TIMEOUT_S = 5.0

_Answer = TypeVar("_Answer")


class Questions:
    """Nobody waits any more once the thread that answers has ended."""

    def __init__(self) -> None:
        self._waiting: set[Future[Any]] = set()
        self._has_ended = False

    def ask(
        self, question: Callable[[], _Answer], post: Callable[[Callable[[], None]], None]
    ) -> _Answer:
        """What it returns or raises on the thread that does what is posted. Any other thread.

        Raises:
            TimeoutError: that thread did not come round within 5 s, or has ended; what was asked
                is not done later.
        """
        answer: Future[_Answer] = Future()
        self._waiting.add(answer)
        try:
            post(lambda: _settle(answer, question))
            if self._has_ended:
                answer.cancel()
            return _wait_for(answer)
        finally:
            self._waiting.discard(answer)

    def end(self) -> None:
        """Of the thread that answers, as the last that it does."""
        self._has_ended = True  # first: who asks from here on sees it
        for answer in list(self._waiting):
            answer.cancel()


def _settle(answer: Future[_Answer], question: Callable[[], _Answer]) -> None:
    if not answer.set_running_or_notify_cancel():
        return
    try:
        answer.set_result(question())
    except Exception as error:  # belongs to whoever asked
        answer.set_exception(error)


def _wait_for(answer: Future[_Answer]) -> _Answer:
    try:
        return answer.result(ASK_TIMEOUT_S)
    except CancelledError:
        raise TimeoutError from None
    except TimeoutError:
        if answer.cancel():
            raise
        return answer.result()  # it is being done: nobody is to hear that it is not
