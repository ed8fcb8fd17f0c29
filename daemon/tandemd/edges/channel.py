"""Shim channels over shared memory: performs the core's actions on each process's pages.

Belongs to the loop's thread, as the native objects do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from tandem import _native
from tandemd.core.events import (
    Action,
    CloseGates,
    CopyPool,
    DropFile,
    DropPool,
    MoveMemory,
    OfferFile,
    OpenGates,
    SetClass,
    SetHonourPresence,
    SetLane,
    SetLinger,
    SetMemoryLease,
    SetMemoryLimit,
    SetMemoryPlace,
    SetMemoryWait,
    SetPhaseLimit,
    SetPresence,
    SetSms,
    SetStepLimit,
    SetWindow,
    TakeBack,
    TellPause,
)
from tandemd.core.memory.homes import HomeAction
from tandemd.core.model import JobClass, SmSet

STALE_NS = 2_000_000_000  # after so long without a tick the shims take the daemon for hung


@dataclass(slots=True, kw_only=True)
class Channel:
    """One process's pages and what the process was shown."""

    process_id: int
    pages: _native.Process
    job_class: JobClass = JobClass.NORMAL
    presence_fd: int | None = None  # once mapped and sealed
    welcomed: bool = False
    newest_move: int = 0  # the newest order
    looks_at: set[int] = field(default_factory=set)  # peers' process ids, as the core wants it
    shown: dict[int, int] = field(default_factory=dict)  # peer's process id -> index


class Homes(Protocol):
    """What processes have on the host: memory and files (homes.py)."""

    def open(self, process_id: int) -> None:
        """Add a process."""

    def forget(self, process_id: int) -> None:
        """Drop a process that has gone."""

    def give(self, move: MoveMemory, then: Callable[[], None]) -> None:
        """Provide the memory that comes with an order."""

    def perform(self, action: HomeAction) -> None:
        """Carry out what is to happen to that memory."""


class Channels:
    """The channels of all processes."""

    def __init__(
        self,
        *,
        send: Callable[[int, bytes, tuple[int, ...]], None],
        offer: Callable[[int, bytes, tuple[int, ...]], bool],
        homes: Homes,
    ) -> None:
        """`send(process_id, packet, fds)` puts a packet on that process's attach connection.

        `offer` sends only if the connection has room for the packet, and says whether it did; if
        not, `readable` is called later.
        """
        self._send = send
        self._offer = offer
        self._homes = homes
        self._channels: dict[int, Channel] = {}

    def open(self, process_id: int, pages: _native.Process) -> None:
        """Take over a freshly attached process."""
        pages.set_stale(stale_ns=STALE_NS)
        pages.set_flags(honour_presence=True, telemetry=True)
        self._channels[process_id] = Channel(process_id=process_id, pages=pages)
        self._homes.open(process_id)

    def welcomed(self, process_id: int) -> None:
        """Note that the process was sent WELCOME, so that other packets may follow."""
        channel = self._channels[process_id]
        channel.welcomed = True
        self._show(channel)

    def readable(self, process_id: int) -> None:
        """Show the process the current state after a time in which it did not read."""
        channel = self._channels[process_id]
        if channel.welcomed:
            self._show(channel)

    def mapped(self, process_id: int) -> None:
        """Seal the presence page that the process has mapped, so that peers can be shown it."""
        channel = self._channels[process_id]
        channel.presence_fd = channel.pages.seal_presence()

    def close(self, process_id: int) -> None:
        """Release the pages of a process that has gone."""
        channel = self._channels.pop(process_id, None)
        if channel is not None:
            channel.pages.close()
            self._homes.forget(process_id)

    def release_all(self) -> None:
        """Let all processes run ungated, with their limits, because the daemon exits."""
        for channel in self._channels.values():
            channel.pages.set_flags(honour_presence=False, telemetry=False, released=True)
            channel.pages.set_gate(hold=False)

    def perform(self, action: Action) -> None:
        """Carry out an action; ignores those that are not about a channel."""
        match action:
            case OpenGates(process_ids=process_ids) | CloseGates(process_ids=process_ids):
                for process_id in process_ids:
                    self._channels[process_id].pages.set_gate(hold=isinstance(action, CloseGates))
            case SetHonourPresence(process_ids=process_ids, honour=honour):
                for process_id in process_ids:
                    pages = self._channels[process_id].pages
                    pages.set_flags(honour_presence=honour, telemetry=True)
            case SetPresence(process_id=process_id, looks_at=looks_at):
                watcher = self._channels[process_id]
                watcher.looks_at = set(looks_at)
                if watcher.welcomed:
                    self._show(watcher)
            case (
                SetWindow()
                | SetMemoryLimit()
                | SetMemoryLease()
                | SetStepLimit()
                | SetPhaseLimit()
                | SetMemoryWait()
                | SetMemoryPlace()
                | MoveMemory()
                | SetLane()
                | CopyPool()
                | OfferFile()
                | TakeBack()
                | DropPool()
                | DropFile()
                | SetSms()
                | SetClass()
                | SetLinger()
                | TellPause()
            ):
                self._set(self._channels[action.process_id], action)
            case _:
                pass

    def _set(
        self,
        channel: Channel,
        action: SetWindow
        | SetMemoryLimit
        | SetMemoryLease
        | SetStepLimit
        | SetPhaseLimit
        | SetMemoryWait
        | SetMemoryPlace
        | MoveMemory
        | SetLane
        | CopyPool
        | OfferFile
        | TakeBack
        | DropPool
        | DropFile
        | SetSms
        | SetClass
        | SetLinger
        | TellPause,
    ) -> None:
        pages = channel.pages
        match action:
            case SetWindow():
                pages.set_window(segments=action.segments, segment_ns=action.segment_ns)
            case SetStepLimit():
                pages.set_mark_limit(phases=False, number=action.steps)
            case SetPhaseLimit():
                pages.set_mark_limit(phases=True, number=action.phases)
            case (
                SetMemoryLimit() | SetMemoryLease() | SetMemoryWait() | SetMemoryPlace() | SetLane()
            ):
                _tell_memory(pages, action)
            case SetSms() | SetClass() | SetLinger() | TellPause():
                self._set_manners(channel, action)
            case MoveMemory() | CopyPool() | OfferFile() | TakeBack() | DropPool() | DropFile():
                self._move(action)

    def _set_manners(
        self, channel: Channel, action: SetSms | SetClass | SetLinger | TellPause
    ) -> None:
        match action:
            case SetSms(set=sms, turn=turn):
                self._set_sms(channel, sms, turn)
            case SetClass(job_class=job_class):
                channel.job_class = job_class
                channel.pages.set_class(job_class=int(job_class))
            case SetLinger():
                channel.pages.set_linger(linger_ns=action.linger_ns, limit_ns=action.limit_ns)
            case TellPause(number=number):
                channel.pages.set_pause(number=number)

    def _set_sms(self, channel: Channel, sms: SmSet, turn: int) -> None:
        channel.pages.set_sms(first=sms.first, count=sms.count, group_sms=sms.group_sms, turn=turn)
        if channel.welcomed:  # a sleeping process looks at its page only when a packet arrives
            self._send(channel.process_id, _native.encode_swap(), ())

    def _move(self, move: MoveMemory | HomeAction) -> None:
        if not isinstance(move, MoveMemory):
            self._homes.perform(move)
            return
        self._channels[move.process_id].newest_move = move.order
        if move.pool_bytes:
            self._homes.give(move, then=lambda: self._tell_move(move))
        else:
            self._tell_move(move)

    def _tell_move(self, move: MoveMemory) -> None:
        channel = self._channels[move.process_id]
        if channel.newest_move != move.order:
            return  # another order was given while its pool was made
        channel.pages.set_resident_target(bytes=move.target_bytes, order=move.order)
        self._send(move.process_id, _native.encode_swap(), ())

    def _show(self, watcher: Channel) -> None:
        # Stop looking at a page before it goes, and look at one only after it came.
        watcher.pages.set_presence_mask(mask=self._mask(watcher))
        self._show_changes(watcher)
        watcher.pages.set_presence_mask(mask=self._mask(watcher))

    def _show_changes(self, watcher: Channel) -> None:
        """Send changes until the process stops reading; changes up to its next read are merged."""
        looks_at = self._looks_at(watcher)
        for peer in [peer for peer in watcher.shown if peer not in looks_at]:
            index = watcher.shown[peer]
            packet = _native.encode_presence(index=index, job_class=0, gone=True)
            if not self._offer(watcher.process_id, packet, ()):
                return
            del watcher.shown[peer]
        for peer in sorted(looks_at - watcher.shown.keys()):
            if not self._show_one(watcher, self._channels[peer]):
                return

    def _show_one(self, watcher: Channel, peer: Channel) -> bool:
        if peer.presence_fd is None:
            return True
        taken = set(watcher.shown.values())
        index = next(i for i in range(_native.PRESENCE_MAX) if i not in taken)
        packet = _native.encode_presence(index=index, job_class=int(peer.job_class))
        if not self._offer(watcher.process_id, packet, (peer.presence_fd,)):
            return False
        watcher.shown[peer.process_id] = index
        return True

    def _looks_at(self, watcher: Channel) -> set[int]:
        return watcher.looks_at & self._channels.keys()

    def _mask(self, watcher: Channel) -> int:
        looks_at = self._looks_at(watcher)
        return sum(1 << index for peer, index in watcher.shown.items() if peer in looks_at)


def _tell_memory(
    pages: _native.Process,
    action: SetMemoryLimit | SetMemoryLease | SetMemoryWait | SetMemoryPlace | SetLane,
) -> None:
    match action:
        case SetMemoryLimit():
            pages.set_memory_limit(limit_bytes=action.limit_bytes)
        case SetMemoryLease():
            pages.set_memory_lease(lease_bytes=max(1, action.lease_bytes))  # 0 means no lease
        case SetMemoryWait():
            pages.set_memory_wait(wait_ns=action.wait_ns)
        case SetMemoryPlace():
            pages.set_memory_place(
                ticket=action.ticket,
                round=action.round,
                refused=action.is_refused,
                line_ahead=action.line_ahead,
            )
        case SetLane():
            pages.set_lane(holds=action.holds)
