"""Answers questions on the socket: checks the peer, and takes one question per connection.

Each connection has a thread of its own, because some verbs take minutes and none should wait for
another. A peer is identified by what the kernel says of the connection.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Sequence

import structlog

from tandem._helper import MOST_BYTES
from tandem.errors import AccessError, BugError, CapacityError, TandemError, UsageError
from tandemd.edges.peers import Peer, peer_of
from tandemd.helper import wire
from tandemd.helper.wire import Answer, Question, Questions

HEAR_S = 5.0  # for a question after its connection, and for its answer to be read
MOST_CONNECTIONS = 32  # at a time; the daemon saves four processes at once, and brings back sixteen
ENOUGH = 8  # descriptors of one message that are received, to be closed

# Carries out a question, with its descriptors, which are closed afterwards; any thread.
Do = Callable[[Questions, Sequence[int]], Answer]

log = structlog.get_logger("tandemd-helper")


class Service:
    """The server. `run` has a thread of its own; everything else is for any thread."""

    def __init__(self, listener: socket.socket, *, uids: frozenset[int], do: Do) -> None:
        """`uids` are those that may ask."""
        listener.settimeout(0)  # so that accept does not wait if a client has given up
        self._listener = listener
        self._uids = uids
        self._do = do
        self._changed = threading.Condition()  # also the lock of what follows
        self._open = 0  # connections
        self._is_closing = False
        self._quiet_since_s = time.monotonic()

    def run(self) -> None:
        """Take connections until `close`."""
        while True:
            select.select([self._listener], [], [])
            with self._changed:
                if self._is_closing:
                    return
                try:
                    connection, _ = self._listener.accept()
                except BlockingIOError:  # the client has gone again
                    continue
                self._open += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def close(self, *, idle_s: float = 0.0) -> bool:
        """Stop accepting if idle for `idle_s`; newcomers then queue for the next helper.

        Returns False if a client is, or was, there.
        """
        with self._changed:
            is_idle = not self._open and time.monotonic() - self._quiet_since_s >= idle_s
            waits = select.select([self._listener], [], [], 0)[0]
            self._is_closing = is_idle and not waits
            return self._is_closing

    def finish(self, timeout_s: float) -> None:
        """Stop accepting, and wait for answers under way, at most `timeout_s`."""
        with self._changed:
            self._is_closing = True
            self._changed.wait_for(lambda: not self._open, timeout_s)

    def _serve(self, connection: socket.socket) -> None:
        try:
            # A client that does not wait gets no answer.
            with connection, contextlib.suppress(OSError):
                connection.settimeout(HEAR_S)
                connection.send(wire.encode(self._answer(connection)))
                _see_off(connection)
        finally:
            with self._changed:
                self._open -= 1
                self._changed.notify_all()
                self._quiet_since_s = time.monotonic()

    def _answer(self, connection: socket.socket) -> Answer:
        peer, said = peer_of(connection), "no question"
        descriptors: list[int] = []
        try:
            self._check(peer)
            message = _received(connection, descriptors)
            question = wire.read_question(message)
            said = question.verb
            answer = self._do(question, descriptors)
        except TandemError as error:
            log.warning("refused", verb=said, uid=peer.uid, pid=peer.pid, reason=str(error))
            return wire.refusal(error)
        except Exception:  # the waiting client must get an answer
            log.exception("failed", verb=said, uid=peer.uid, pid=peer.pid)
            return wire.refusal(BugError("tandemd-helper failed; its log says why"))
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        log.info("done", uid=peer.uid, pid=peer.pid, **_details(question, answer))
        return answer

    def _check(self, peer: Peer) -> None:
        if peer.uid not in self._uids:
            may = " and ".join(map(str, sorted(self._uids)))
            raise AccessError(f"uid {peer.uid} may not ask; these uids may: {may}")
        if self._open > MOST_CONNECTIONS:
            raise CapacityError(f"{MOST_CONNECTIONS} questions are being answered; try again later")


def _received(connection: socket.socket, descriptors: list[int]) -> bytes:
    """Receive the only message, and append its descriptors to `descriptors`.

    Raises:
        UsageError: it is too long, has more than one descriptor, or another message came as well.
    """
    try:
        kept = socket.MSG_CMSG_CLOEXEC
        message, came, flags, _ = socket.recv_fds(connection, MOST_BYTES, ENOUGH, kept)
        descriptors += came
    except TimeoutError as error:
        raise UsageError(f"no question came within {HEAR_S:g} s") from error
    except OSError as error:
        raise UsageError(f"no question came: {error.strerror}") from error
    if flags & socket.MSG_TRUNC:
        raise UsageError(f"the message has more than {MOST_BYTES} bytes")
    if flags & socket.MSG_CTRUNC or len(descriptors) > 1:
        raise UsageError("the message has more than one descriptor with it")
    if select.select([connection], [], [], 0)[0] and connection.recv(1, socket.MSG_PEEK):
        raise UsageError("several messages came at once; ask one question a connection")
    return message


def _see_off(connection: socket.socket) -> None:
    """Wait for the peer to close: closing with data unread would drop our answer."""
    end_s = time.monotonic() + HEAR_S
    while connection.recv(1) and time.monotonic() < end_s:
        pass


def _details(question: Question, answer: Answer) -> dict[str, str]:
    """Return what to log; the question was validated, so all values are plain words."""
    fields = {name: getattr(question, name) for name in question.__struct_fields__}
    said = {
        name: ",".join(value) if isinstance(value, tuple) else str(value)
        for name, value in fields.items()
    }
    if answer.process:
        said["process"] = str(answer.process)
    return {"verb": question.verb, **said}
