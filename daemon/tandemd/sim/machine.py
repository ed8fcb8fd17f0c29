"""The modelled GPU, in mode `time`: which of the submitted work runs when, and its memory.

It follows the software GPU (docs/software-gpu.md, Who runs), of which this is the part that decides
about time. One context has the engine. Its slice ends when it has nothing ready, or after
`slice_ns` while another context has something; the next context, by number, gets the engine after
`switch_ns`. Pieces of one context run in order, and a piece that is preempted keeps its rest.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stretch:
    """A period in which one context had the engine without a break."""

    context: int
    begin_ns: int
    end_ns: int


class Engine:
    """Decides which context computes. The end of a piece is not revealed before its time."""

    def __init__(self, *, slice_ns: int, switch_ns: int) -> None:
        self.now_ns = 0
        self.switches = 0
        self.worked_ns = 0  # all contexts together
        self.stretches: list[Stretch] | None = None  # a list to record what ran
        self._slice_ns, self._switch_ns = slice_ns, switch_ns
        self._worked_ns: dict[int, int] = {}  # by context
        self._pieces: dict[int, deque[int]] = {}  # the rest of each piece, by context
        self._active: int | None = None
        self._ready_ns = self._slice_start_ns = 0  # when a context switch is, or was, complete

    def submit(self, context: int, work_ns: int) -> None:
        """Queue work behind all that the context has submitted before."""
        self._pieces.setdefault(context, deque()).append(work_ns)
        self._pass_on()

    @property
    def next_ns(self) -> int | None:
        """Return when something ends or changes by itself; None: nothing does."""
        pieces = self._active_pieces
        if not pieces:
            return None
        end_ns = max(self.now_ns, self._ready_ns) + pieces[0]
        if len(self._pieces) == 1:
            return end_ns
        return min(end_ns, max(self.now_ns, self._slice_start_ns + self._slice_ns))

    def advance(self, to_ns: int) -> int | None:
        """Compute until then, at most `next_ns`; returns the context whose piece ended."""
        begin_ns, self.now_ns = max(self.now_ns, self._ready_ns), to_ns
        pieces, ended = self._active_pieces, None
        if self._active is not None and pieces and to_ns > begin_ns:
            self._run(self._active, begin_ns, to_ns)
            pieces[0] -= to_ns - begin_ns
            if not pieces[0]:
                ended = self._active
                pieces.popleft()
        if ended is not None and not pieces:
            del self._pieces[ended]
        self._pass_on()
        return ended

    @property
    def _active_pieces(self) -> deque[int] | None:
        return None if self._active is None else self._pieces.get(self._active)

    def worked_of_ns(self, context: int) -> int:
        """Return how long it has computed."""
        return self._worked_ns.get(context, 0)

    def _run(self, context: int, begin_ns: int, end_ns: int) -> None:
        self.worked_ns += end_ns - begin_ns
        self._worked_ns[context] = self.worked_of_ns(context) + end_ns - begin_ns
        if self.stretches is None:
            return
        last = self.stretches[-1] if self.stretches else None
        if last is not None and (last.context, last.end_ns) == (context, begin_ns):
            self.stretches.pop()
            begin_ns = last.begin_ns
        self.stretches.append(Stretch(context, begin_ns, end_ns))

    def _pass_on(self) -> None:
        """Give the engine to the next context, if it is its turn."""
        others = [context for context in self._pieces if context != self._active]
        if not others or self.now_ns < self._ready_ns:
            return
        is_over = self.now_ns - self._slice_start_ns >= self._slice_ns
        if self._active in self._pieces and not is_over:
            return
        last = self._active
        behind = [context for context in others if last is not None and context > last]
        self._active = min(behind or others)
        if last is not None:  # the first context of all replaces none
            self._ready_ns = self.now_ns + self._switch_ns
            self.switches += 1
        self._slice_start_ns = max(self.now_ns, self._ready_ns)


@dataclass(slots=True)
class Memory:
    """The GPU's memory; a size of 0 = there is enough for everybody."""

    size_bytes: int
    used_bytes: int = 0

    def take(self, size_bytes: int) -> bool:
        """Take memory, if there is so much; returns whether there was."""
        if self.size_bytes and self.used_bytes + size_bytes > self.size_bytes:
            return False
        self.used_bytes += size_bytes
        return True

    def give_back(self, size_bytes: int) -> None:
        """Free memory for others."""
        self.used_bytes -= size_bytes
