"""Find out whether a silent daemon is still alive, which a stream alone does not show."""

import threading
from collections.abc import Callable
from typing import Protocol

from tandem.errors import DeadlineError, TandemError, UnavailableError

BEAT_S = 10.0


class Stream(Protocol):
    """The methods needed of a gRPC stream."""

    def add_callback(self, callback: Callable[[], None], /) -> bool:
        """Call `callback` when the stream ends; return False if it already has."""

    def cancel(self) -> bool:
        """End the stream."""


class Heartbeat:
    """Makes a small request to the daemon periodically, and ends the stream once nobody answers.

    Runs on its own thread until the stream ends. A connection stays open even if the process is
    stopped, and gRPC would answer its own pings even if the daemon's scheduler hangs.
    """

    def __init__(self, stream: Stream, ask: Callable[[], object], *, every_s: float) -> None:
        """`ask` makes a request with a deadline; it is called on the heartbeat's thread."""
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
                pass  # the daemon answers, though with an error; or the channel was just closed
