"""Descriptors of each process's host memory: its pools, and files that take their place.

The daemon keeps one of each to copy memory to a file and to hand either back. The process has its
own descriptors, so nothing is lost with the daemon. Belongs to the loop's thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from tandem import _native
from tandemd.core.events import (
    CopyPool,
    DropFile,
    DropPool,
    MoveMemory,
    OfferFile,
    PoolCopied,
    PoolMade,
    PoolRefused,
    TakeBack,
)
from tandemd.core.memory.homes import HomeAction

HomeEvent = PoolCopied | PoolMade | PoolRefused


class Copied(Protocol):
    """A file, and a second descriptor for reading only (host_files.py)."""

    @property
    def file(self) -> int:
        """Return the writable descriptor, which has to be dropped in the end."""

    @property
    def reader(self) -> int:
        """Return the read-only descriptor for the process."""


class Host(Protocol):
    """Makes memory and files on threads of its own; calls each taker on the loop's thread."""

    def want_pool(
        self, count: int, node: int | None, taker: Callable[[int | None, int], None]
    ) -> None:
        """Give `taker` a sealed memfd of `count` bytes near that NUMA node, or None.

        The second argument of `taker` is the time that it took to make, in ns.
        """

    def want_copy(
        self, memory: int, count: int, taker: Callable[[Copied | str], None]
    ) -> Callable[[], None]:
        """Give `taker` a file copy of `memory`, or why there is none; returns what cancels it."""

    def drop(self, fd: int, *, emptied: bool) -> None:
        """Close `fd`; if `emptied`, also discard its contents for all others that have it open."""


@dataclass(slots=True, kw_only=True)
class Kept:
    """One pool."""

    number: int  # as the process counts the pools sent to it: from 1
    size_bytes: int
    memory: int | None
    file: Copied | None = None
    stop_copying: Callable[[], None] | None = None


class Homes:
    """The pools of all processes."""

    def __init__(
        self,
        *,
        host: Host,
        send: Callable[[int, bytes, tuple[int, ...]], None],
        tell: Callable[[Callable[[int], HomeEvent]], None],
        node_of: Callable[[int], int | None],
    ) -> None:
        """`send(process_id, packet, fds)` is as for channels; `tell` delivers an event.

        The argument of `tell` is a function that makes the event from the present time.
        `node_of(process_id)` is the NUMA node of the process's first GPU, if known.
        """
        self._host = host
        self._send = send
        self._tell = tell
        self._node_of = node_of
        self._kept: dict[int, dict[int, Kept]] = {}  # process, order
        # Actions for pools that are still being made, by process and order.
        self._later: dict[tuple[int, int], list[HomeAction]] = {}

    def open(self, process_id: int) -> None:
        """Add a process."""
        self._kept[process_id] = {}

    def forget(self, process_id: int) -> None:
        """Drop a process whose connection is gone. If it still lives, it keeps what it has."""
        for kept in self._kept.pop(process_id, {}).values():
            if kept.stop_copying is not None:
                kept.stop_copying()
            self._close_memory(kept, emptied=False)
            self._close_file(kept, emptied=False)

    def give(self, move: MoveMemory, then: Callable[[], None]) -> None:
        """Send the process the memory that comes with an order, if there is any; call `then`."""
        self._later[move.process_id, move.order] = []

        def hand_over(fd: int | None, took_ns: int) -> None:
            later = self._later.pop((move.process_id, move.order), [])
            pools = self._kept.get(move.process_id)
            if pools is None:  # the process left meanwhile
                if fd is not None:
                    self._host.drop(fd, emptied=True)
                return
            if fd is None:
                self._tell(
                    lambda now_ns: PoolRefused(
                        now_ns=now_ns, process_id=move.process_id, pool=move.order
                    )
                )
            else:
                number = len(pools) + 1
                pools[move.order] = Kept(number=number, size_bytes=move.pool_bytes, memory=fd)
                packet = _native.encode_host_pool(bytes=move.pool_bytes)
                self._send(move.process_id, packet, (fd,))
                if took_ns:
                    self._tell(partial(_made, move, took_ns))
            then()  # without memory the process reports that it has no room
            for action in later:
                self.perform(action)

        self._host.want_pool(move.pool_bytes, self._node_of(move.process_id), hand_over)

    def perform(self, action: HomeAction) -> None:
        """Carry out an action on a pool; does nothing if the pool is gone."""
        if (later := self._later.get((action.process_id, action.pool))) is not None:
            later.append(action)
            return
        kept = self._kept.get(action.process_id, {}).get(action.pool)
        if kept is not None:
            self._perform(action, kept)

    def _perform(self, action: HomeAction, kept: Kept) -> None:
        match action:
            case CopyPool():
                self._copy(action, kept)
            case OfferFile():
                self._offer(action, kept)
            case TakeBack():
                self._ask_back(action, kept)
            case DropPool():
                self._close_memory(kept, emptied=True)
            case DropFile():
                if kept.stop_copying is not None:
                    kept.stop_copying()
                self._close_file(kept, emptied=True)

    def _copy(self, action: CopyPool, kept: Kept) -> None:
        if kept.memory is None:
            return
        is_wanted = True

        def stop() -> None:
            nonlocal is_wanted
            is_wanted = False
            end()

        def take(answer: Copied | str) -> None:
            if not is_wanted:
                if not isinstance(answer, str):
                    self._host.drop(answer.reader, emptied=False)
                    self._host.drop(answer.file, emptied=True)
                return
            kept.stop_copying = None
            why_not = answer if isinstance(answer, str) else ""
            kept.file = None if isinstance(answer, str) else answer
            self._tell(
                lambda now_ns: PoolCopied(
                    now_ns=now_ns,
                    process_id=action.process_id,
                    pool=action.pool,
                    why_not=why_not,
                )
            )

        end = self._host.want_copy(kept.memory, kept.size_bytes, take)
        kept.stop_copying = stop

    def _offer(self, offer: OfferFile, kept: Kept) -> None:
        if kept.file is None:
            return
        packet = _native.encode_host_file(order=offer.order, since=offer.since, pool=kept.number)
        self._send(offer.process_id, packet, (kept.file.reader,))

    def _ask_back(self, ask: TakeBack, kept: Kept) -> None:
        packet = _native.encode_host_back(order=ask.order, since=ask.since, pool=kept.number)
        self._send(ask.process_id, packet, ())

    def _close_memory(self, kept: Kept, *, emptied: bool) -> None:
        if kept.memory is not None:
            self._host.drop(kept.memory, emptied=emptied)
        kept.memory = None

    def _close_file(self, kept: Kept, *, emptied: bool) -> None:
        if kept.file is not None:
            self._host.drop(kept.file.reader, emptied=False)
            self._host.drop(kept.file.file, emptied=emptied)
        kept.file = None


def _made(move: MoveMemory, took_ns: int, now_ns: int) -> PoolMade:
    return PoolMade(
        now_ns=now_ns, process_id=move.process_id, size_bytes=move.pool_bytes, took_ns=took_ns
    )
