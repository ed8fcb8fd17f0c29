"""Stands between attach socket and loop: a greeting waits until its user is known."""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

from tandem import _native
from tandemd.edges.attach import Gone, Message, Received
from tandemd.edges.worker import Worker
from tandemd.identities import Identities

MOST_WAITING = 64  # packets of one connection; no shim sends so many before its WELCOME

log = structlog.get_logger(__name__)


class Introductions:
    """Passes messages on, in order for each connection. `take` is for any thread.

    A greeting waits until the user database has been asked about its uid, and later messages of the
    same connection queue behind it; other connections go on. Lookups run one after the other. A uid
    that is trusted or was found lately passes at once and is looked up again afterwards.
    """

    def __init__(
        self,
        *,
        identities: Identities,
        trusted_uids: frozenset[int],
        deliver: Callable[[Message], None],
        at_once: bool,
    ) -> None:
        """`deliver` must return at once. `at_once`: `take` does the lookup itself (virtual clock).

        Raises:
            RuntimeError: the lookup threads cannot be started. `take` starts no further one.
        """
        self._identities = identities
        self._trusted_uids = trusted_uids
        self._deliver = deliver
        self._newcomers = Worker("users", at_once=at_once)
        # Renewals, kept apart so that no newcomer waits behind them.
        self._others = Worker("users-again", at_once=at_once)
        for worker in (self._newcomers, self._others):
            worker.begin()
        self._lock = threading.Lock()
        self._waiting: dict[int, list[Message]] = {}  # by connection
        self._again: set[int] = set()  # uids to be looked up again

    def take(self, message: Message) -> None:
        """Pass a message on, or queue it."""
        connection = message.connection
        uid, number = connection.peer.uid, connection.number
        with self._lock:
            if (waiting := self._waiting.get(number)) is not None:
                if isinstance(message, Gone):
                    del self._waiting[number]  # the loop has never heard of it, and need not
                elif len(waiting) < MOST_WAITING:
                    waiting.append(message)
                return
            greets = _greets(message)
            must_wait = greets and not self._may_pass(uid)
            if must_wait:
                self._waiting[number] = [message]
            else:
                self._deliver(message)
        if must_wait:
            self._newcomers.do(lambda: self._introduce(uid, number))
        elif greets and not self._identities.is_fresh(uid):
            self._ask_again(uid)

    def _may_pass(self, uid: int) -> bool:
        return uid in self._trusted_uids or self._identities.can_wait(uid)

    def _introduce(self, uid: int, number: int) -> None:
        with self._lock:
            if number not in self._waiting:
                return
        try:
            self._ask(uid)
        finally:
            with self._lock:
                for message in self._waiting.pop(number, ()):
                    self._deliver(message)

    def _ask_again(self, uid: int) -> None:
        with self._lock:
            if uid in self._again:
                return
            self._again.add(uid)
        self._others.do(lambda: self._renew(uid))

    def _renew(self, uid: int) -> None:
        try:
            self._ask(uid)
        finally:
            with self._lock:
                self._again.discard(uid)

    def _ask(self, uid: int) -> None:
        try:
            self._identities.of(uid)
        except OSError as error:
            log.warning(
                "cannot look the user up, continuing with what is known", uid=uid, error=str(error)
            )


def _greets(message: Message) -> bool:
    return isinstance(message, Received) and isinstance(
        message.packet, _native.Hello | _native.Register
    )
