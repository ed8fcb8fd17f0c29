"""Whether a daemon that has nothing to tell still could: a stream alone does not show it."""

import threading
from collections.abc import Callable
from typing import Protocol

from tandem.errors import DeadlineError, TandemError, UnavailableError

BEAT_S = 10.0


class Stream(Protocol):
    """What is watched, as gRPC has it."""

    def add_callback(self, callback: Callable[[], None], /) -> bool:
        """Call it when the stream ends; False: it has."""

    def cancel(self) -> bool:
        """End it."""


class Heartbeat:
    """Asks the daemon something small now and then, and ends the stream once nobody answers.

    In a thread of its own, until the stream ends. A connection lives as long as a stopped process
    does, and gRPC's own pings would be answered beside a scheduler that hangs.
    """

    def __init__(self, stream: Stream, ask: Callable[[], object], *, every_s: float) -> None:
        """`ask`: has a deadline; called from the thread."""
        self.failure: UnavailableError | None = None  # why the stream was ended, if it was
        self._stream = stream
        self._ask = ask
        self._every_s = every_s
        self._has_ended = threading.Event()
        if stream.add_callback(self._has_ended.set):
            threading.Thread(target=self._beat, name="tandem heartbeat", daemon=True).start()

    def _beat(self) -> None:
        while not self._has_ended.wait(self._every_s):
            try:
                self._ask()
            except (DeadlineError, UnavailableError) as exc:
                self.failure = UnavailableError(str(exc))
                self._stream.cancel()
            except (TandemError, ValueError):
                pass  # it answers, if not what we would like; or the channel was closed just now
