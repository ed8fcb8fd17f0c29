"""Blocking questions from other threads to the loop's thread."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

ASK_TIMEOUT_S = 5.0

_Answer = TypeVar("_Answer")


class Questions:
    """The pending questions; none stays blocked once the answering thread has ended."""

    def __init__(self) -> None:
        self._waiting: set[Future[Any]] = set()
        self._has_ended = False

    def ask(
        self, question: Callable[[], _Answer], post: Callable[[Callable[[], None]], None]
    ) -> _Answer:
        """Return the result of `question`, run on the thread that serves `post`. Other threads.

        Raises:
            TimeoutError: that thread did not come round within 5 s, or has ended; the question will
                not be run later.
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
        """Cancel all questions. The answering thread calls this last."""
        self._has_ended = True  # set first, so that later questions see it
        for answer in list(self._waiting):
            answer.cancel()


def _settle(answer: Future[_Answer], question: Callable[[], _Answer]) -> None:
    if not answer.set_running_or_notify_cancel():
        return
    try:
        answer.set_result(question())
    except Exception as error:  # raised again for the caller of `ask`
        answer.set_exception(error)


def _wait_for(answer: Future[_Answer]) -> _Answer:
    try:
        return answer.result(ASK_TIMEOUT_S)
    except CancelledError:
        raise TimeoutError from None
    except TimeoutError:
        if answer.cancel():
            raise
        return answer.result()  # already running, so it must not be reported as not done
