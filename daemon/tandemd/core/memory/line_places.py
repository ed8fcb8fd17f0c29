"""What each process is told about the line for device memory, and when the line is looked at.

Whoever may try is told so together with the number of a *round*, and tries again whenever the round
changes, which it does after anything that may have made room. A request that the driver or the
quota refused says in which round that was, so that "has tried since the last change" is known
rather than guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tandemd.core.events import Action, SetMemoryPlace
from tandemd.core.memory.line import MemoryLine, Waiter, held_bytes
from tandemd.core.model import Options, Process, Usage

ROUNDS = 2**32  # as many rounds as the process can tell apart


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What a process is told; the default is the state of a fresh command page."""

    ticket: int = 0  # of its request that may try or is refused; 0 = none
    round: int = 0
    is_refused: bool = False
    line_ahead: bool = False  # others wait: if it may wait, it lines up before asking the driver

    def action(self, process_id: int) -> Action:
        """Return the action that tells the process."""
        return SetMemoryPlace(
            process_id=process_id,
            ticket=self.ticket,
            round=self.round,
            is_refused=self.is_refused,
            line_ahead=self.line_ahead,
        )


class MemoryPlaces:
    """The line and what processes were told about it. Belongs to the scheduler."""

    def __init__(self, line: MemoryLine, processes: Mapping[int, Process]) -> None:
        self.line = line
        self.wake_at_ns: int | None = None
        self._processes = processes
        self._told: dict[int, Place] = {}
        self._round = 1
        self._is_news = False
        self._grace_until_ns = 0

    def take(self, process: Process, before: Usage, now_ns: int) -> None:
        """Take in new figures that a process reports of itself."""
        usage, waiters = process.usage, self.line.waiters
        known = process.process_id in waiters
        if known or usage.memory_wait is not None:
            self._is_news |= self.line.take(process, before, now_ns)
        has_left = known and process.process_id not in waiters
        if has_left or usage.resident_bytes < before.resident_bytes:
            self.note_change()

    def forget(self, process: Process, now_ns: int, options: Options) -> None:
        """Drop a process that is gone; the driver may take a while to give back what it held."""
        self.line.waiters.pop(process.process_id, None)
        self._told.pop(process.process_id, None)
        if held_bytes(process):
            self._grace_until_ns = now_ns + options.memory_grace_ns
        self.note_change()

    def note_change(self) -> None:
        """Note that there may be more memory than at the last try, or fewer requests for it."""
        if self._is_used:
            self._round = (self._round + 1) % ROUNDS or 1
            self._is_news = True

    def note_arrival(self) -> None:
        """Note that there is a new process, which was told nothing yet."""
        self._is_news |= self._is_used

    def settle(self, now_ns: int, options: Options) -> Iterable[Action]:
        """Decide anew if there is anything to decide; return what has to be told."""
        due = self.wake_at_ns is not None and now_ns >= self.wake_at_ns
        if not (self._is_news or due):
            return ()
        self._is_news = False
        self.line.look(now_ns)
        if now_ns >= self._grace_until_ns:
            self._refuse_one_of_the_dead(now_ns, options)
        self.wake_at_ns = self._next_look_ns(now_ns, options)
        return self._tell()

    @property
    def _is_used(self) -> bool:
        return bool(self.line.waiters or self._told)

    def _refuse_one_of_the_dead(self, now_ns: int, options: Options) -> None:
        """Refuse one request at a time: that may already help the others."""
        dead = self.line.dead(self._has_tried, now_ns, options)
        tried = [waiter for waiter in dead if waiter.may_try]
        holders = [waiter for waiter in tried if held_bytes(waiter.process)]
        if found := (holders or tried):
            self.line.refuse(found[-1])
            self.line.look(now_ns)

    def _has_tried(self, waiter: Waiter) -> bool:
        told = self._told.get(waiter.process.process_id, Place())
        asked = (told.ticket, told.round) == (waiter.wait.ticket, self._round)
        return asked and waiter.wait.tried_round == self._round

    def _next_look_ns(self, now_ns: int, options: Options) -> int | None:
        standing = self.line.standing
        looks = [self._grace_until_ns] if standing else []
        for waiter in standing:
            looks += [waiter.quiet_until_ns(options), waiter.deadline_ns]
        return min((at_ns for at_ns in looks if at_ns > now_ns), default=None)

    def _tell(self) -> Iterator[Action]:
        standing = self.line.standing
        for process in self._processes.values():
            place = self._place(process, standing)
            if place == self._told.get(process.process_id, Place()):
                continue
            if place == Place():
                del self._told[process.process_id]
            else:
                self._told[process.process_id] = place
            yield place.action(process.process_id)

    def _place(self, process: Process, standing: list[Waiter]) -> Place:
        line_ahead = any(w.is_in_the_way_of(process) for w in standing if w.process is not process)
        waiter = self.line.waiters.get(process.process_id)
        if waiter is None or not (waiter.is_refused or waiter.may_try):
            return Place(line_ahead=line_ahead)
        return Place(
            ticket=waiter.wait.ticket,
            round=self._round,
            is_refused=waiter.is_refused,
            line_ahead=line_ahead,
        )
