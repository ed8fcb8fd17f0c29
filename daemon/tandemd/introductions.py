"""Between the attach socket and the loop: nobody is heard before it is known who that is."""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

from tandem import _native
from tandemd.edges.attach import Gone, Message, Received
from tandemd.edges.worker import Worker
from tandemd.identities import Identities

MOST_WAITING = 64  # packets of one connection; before its WELCOME no shim says as much

log = structlog.get_logger(__name__)


class Introductions:
    """Passes messages on, those of each connection in order. `take` is for any thread.

    A greeting waits until the user database was asked about its uid, and what comes on the same
    connection waits behind it; all other connections go on.
    """

    def __init__(
        self, *, identities: Identities, deliver: Callable[[Message], None], at_once: bool
    ) -> None:
        """`deliver`: returns at once. `at_once`: `take` asks by itself (virtual clock)."""
        self._identities = identities
        self._deliver = deliver
        self._worker = Worker("users", at_once=at_once)
        self._lock = threading.Lock()
        self._waiting: dict[int, list[Message]] = {}  # connection

    def take(self, message: Message) -> None:
        """Pass one on, or have it wait."""
        connection = message.connection
        uid = connection.peer.uid
        with self._lock:
            if (waiting := self._waiting.get(connection.number)) is not None:
                if len(waiting) < MOST_WAITING or isinstance(message, Gone):
                    waiting.append(message)
                return
            if not _greets(message) or self._identities.is_fresh(uid):
                self._deliver(message)
                return
            self._waiting[connection.number] = [message]
        self._worker.do(lambda: self._introduce(uid, connection.number))

    def _introduce(self, uid: int, number: int) -> None:
        try:
            self._identities.of(uid)
        except OSError as error:
            log.warning("cannot ask who that is, it gets the least", uid=uid, error=str(error))
        finally:
            with self._lock:
                for message in self._waiting.pop(number):
                    self._deliver(message)


def _greets(message: Message) -> bool:
    return isinstance(message, Received) and isinstance(
        message.packet, _native.Hello | _native.Register
    )
