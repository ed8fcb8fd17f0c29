"""How much room each GPU has for memory that moves: counted, and corrected by what is seen.

What processes say that they hold, and what the driver says that they hold besides, is not all:
programs that nobody manages, and pieces too small for anything, take some as well. So where
somebody waits for room that was counted on, and nothing moves, there is less; and where more is
held than was counted on, there is more.
"""

from __future__ import annotations

from dataclasses import dataclass

PATIENCE_NS = 250_000_000  # without a byte that moves: the room that was counted on is not there
STEP = 256  # then it counts on so much less, as a part of the GPU


@dataclass(slots=True)
class _Known:
    missing_bytes: int = 0
    held_bytes: int = 0  # when somebody who waits was last looked at
    since_ns: int | None = None  # since when it has been that; None: nobody waits


class Rooms:
    """The room of every GPU. Pure; belongs to `Residency`."""

    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}

    def forget(self, gpu: int) -> None:
        """Somebody left: what was missing may have been theirs."""
        self._known.pop(gpu, None)

    def room_bytes(self, gpu: int, *, counted_bytes: int, held_bytes: int) -> int:
        """Of `counted_bytes`, what is really there for those who hold `held_bytes` of it now."""
        known = self._known.setdefault(gpu, _Known())
        known.missing_bytes = max(0, min(known.missing_bytes, counted_bytes - held_bytes))
        return counted_bytes - known.missing_bytes

    def watch(
        self, gpu: int, *, waits: bool, held_bytes: int, capacity_bytes: int, now_ns: int
    ) -> int | None:
        """Somebody waits for room, or nobody does; when to look again, None if there is no need."""
        known = self._known.setdefault(gpu, _Known())
        if not waits:
            known.since_ns = None
            return None
        if known.since_ns is None or held_bytes != known.held_bytes:
            known.held_bytes, known.since_ns = held_bytes, now_ns
        elif now_ns - known.since_ns >= PATIENCE_NS:
            known.missing_bytes += capacity_bytes // STEP
            known.since_ns = now_ns
            return now_ns
        return known.since_ns + PATIENCE_NS
