"""Windows of what processes do, recorded when somebody asks: an iteration of each, kept whole."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tandem import _native

LOOK_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One process's window."""

    process_id: int
    window: _native.Window


def record(
    poller: _native.Poller,
    process_ids: tuple[int, ...],
    *,
    patience_s: float,
    is_wanted: Callable[[], bool],
) -> Iterator[Recorded]:
    """Take a new window of every process and yield each when it is complete.

    Blocks; for any thread. Those that are not complete when patience ends, and those of processes
    that leave meanwhile, are left out. Patience is real time, whatever clock the windows are on.
    """
    pending = {}
    for process_id in process_ids:
        pending[process_id] = poller.window(process_id=process_id)
        try:
            poller.want_window(process_id=process_id)
        except KeyError:  # it has left
            del pending[process_id]
    end_s = time.monotonic() + patience_s
    while pending:
        for process_id, before in list(pending.items()):
            window = poller.window(process_id=process_id)
            if window is not None and (before is None or window.end_ns != before.end_ns):
                del pending[process_id]
                yield Recorded(process_id=process_id, window=window)
        if time.monotonic() >= end_s or not is_wanted():
            return
        if pending:
            time.sleep(LOOK_S)
