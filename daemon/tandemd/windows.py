"""Windows of what processes do, recorded when somebody asks: an iteration of each, kept whole."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from tandem import _native

LOOK_S = 0.02
# A window begins with the end of one iteration and ends with that of the next.
_SAMPLED_ITERATIONS = 2
_MOST_LAUNCHES = 65536
_SAMPLE_NS = 5_000_000_000  # as long as a window may take without an iteration


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One process's window, and the names of its kernels as far as they are known."""

    process_id: int
    window: _native.Window
    kernels: tuple[tuple[int, str], ...]


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
        with suppress(KeyError):  # it has left
            before = poller.window(process_id=process_id)
            _ask(poller, process_id)
            pending[process_id] = before
    end_s = time.monotonic() + patience_s
    while pending:
        for process_id, before in list(pending.items()):
            window = poller.window(process_id=process_id)
            if window is not None and (before is None or window.end_ns != before.end_ns):
                del pending[process_id]
                kernels = _kernels(poller, process_id, end_s)
                yield Recorded(process_id=process_id, window=window, kernels=kernels)
        if time.monotonic() >= end_s or not is_wanted():
            return
        if pending:
            time.sleep(LOOK_S)


def _ask(poller: _native.Poller, process_id: int) -> None:
    poller.want_window(process_id=process_id)
    with suppress(RuntimeError):  # somebody else has asked, and will get the names
        poller.begin_sample(
            process_id=process_id,
            launches=_MOST_LAUNCHES,
            iterations=_SAMPLED_ITERATIONS,
            timeout_ns=_SAMPLE_NS,
        )


def _kernels(poller: _native.Poller, process_id: int, end_s: float) -> tuple[tuple[int, str], ...]:
    """Wait a few rounds for the sample: it ends when the window does, or a little later."""
    for _ in range(10):
        sample = poller.take_sample(process_id=process_id)
        if sample is not None:
            return tuple((handle, name) for handle, name, _, _ in sample.functions if name)
        if time.monotonic() >= end_s:
            break
        time.sleep(LOOK_S)
    return ()
