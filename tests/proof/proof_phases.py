"""Generator operations in which threads run side by side, each with its own stream."""

from __future__ import annotations

import proof_batches as batches
import proof_data as data
import proof_memory as memory
import proof_things as things
from proof_model import THREADS, Lane, Model

# What a thread does to its own stream. Nothing here ends a handle that another thread could get.
PARTS = (
    data.launch,
    data.copy_in,
    data.copy_out,
    data.copy_within,
    data.memset,
    data.host_function,
    data.write_value,
    batches.copy_batch,
    memory.allocate,
    things.record_event,
    things.wait,
)


def side_by_side(m: Model) -> None:
    """Let threads run side by side. They share no bytes, so their order does not matter."""
    if m.captures:
        return
    parts = _parts(m)
    if len(parts) < 2:
        return
    for thread, lane in parts:
        m.enter(thread, lane.context)
    m.choices = m.choices.many()
    all_lanes, m.is_aside = m.lanes, True
    for thread, lane in parts:
        _part(m, thread, lane)
    m.lanes, m.is_aside = all_lanes, False
    m.emit(0, "", verb="meet")


def _parts(m: Model) -> list[tuple[int, Lane]]:
    """Return threads, each with a lane that it may use."""
    free, first = list(m.lanes), m.choices.take(len(m.lanes) or 1)
    free = free[first:] + free[:first]
    parts = []
    for thread in range(THREADS):
        fitting = [lane for lane in free if lane.thread in (None, thread)]
        if fitting:
            parts.append((thread, fitting[0]))
            free.remove(fitting[0])
    return parts


def _part(m: Model, thread: int, lane: Lane) -> None:
    m.lanes, pinned = [lane], lane.thread
    lane.thread = thread
    for _ in range(m.choices.take(4) + 1):
        m.choices.pick(PARTS)(m)
    lane.thread = pinned
