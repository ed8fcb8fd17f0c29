"""How much room each GPU has for memory that moves: computed, then corrected by what is seen.

What processes report, and what the driver reports beyond that, is not everything: unmanaged
programs take memory as well, and so do free pieces too small for any use. So where somebody waits
for computed room and nothing moves, the room is taken to be smaller; where more is held than was
computed, it is taken to be larger.
"""

from __future__ import annotations

from dataclasses import dataclass

PATIENCE_NS = 250_000_000  # without a byte moved: the computed room is not there
STEP = 256  # the room then shrinks by 1/256 of the GPU


@dataclass(slots=True)
class _Known:
    missing_bytes: int = 0
    held_bytes: int = 0  # when somebody waiting was last looked at
    since_ns: int | None = None  # since when that has not changed; None: nobody waits


class Rooms:
    """The room of every GPU. Pure; belongs to `Residency`."""

    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}

    def forget(self, gpu: int) -> None:
        """Reset the GPU, because somebody left whose memory may have been what was missing."""
        self._known.pop(gpu, None)

    def room_bytes(self, gpu: int, *, counted_bytes: int, held_bytes: int) -> int:
        """Return how much of `counted_bytes` is really there; `held_bytes` of it is held now."""
        known = self._known.setdefault(gpu, _Known())
        known.missing_bytes = max(0, min(known.missing_bytes, counted_bytes - held_bytes))
        return counted_bytes - known.missing_bytes

    def watch(
        self, gpu: int, *, waits: bool, held_bytes: int, capacity_bytes: int, now_ns: int
    ) -> int | None:
        """Note if somebody waits for room; return when to look again, None if there is no need."""
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
