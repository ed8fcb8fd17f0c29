"""Windows of what processes do, recorded when somebody asks: an iteration of each, kept whole."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType

from tandem import _native
from tandem.errors import UsageError

LOOK_S = 0.02
_MOST_LAUNCHES = 65536
_SAMPLE_NS = 5_000_000_000  # as long as a window may take without an iteration


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One process's window, and what a sample tells of its kernels and launches."""

    process_id: int
    window: _native.Window
    kernels: tuple[tuple[int, str], ...]
    launches: dict[int, tuple[list[tuple[int, int, bool]], bool]]  # _native.Window.launches


def record(
    poller: _native.Poller,
    process_ids: tuple[int, ...],
    *,
    patience_s: float,
    is_wanted: Callable[[], bool],
    signatures: Mapping[str, _native.Signature] = MappingProxyType({}),
) -> Iterator[Recorded]:
    """Take a new window of every process and yield each when it is complete.

    `signatures` are those of kernels whose names do not say them.
    Blocks; for any thread. Those that are not complete when patience ends, and those of processes
    that leave meanwhile, are left out. Patience is real time, whatever clock the windows are on.

    Raises:
        UsageError: a signature does not fit its kernel.
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
                sample = _sample(poller, process_id, end_s)
                yield _with_sample(process_id, window, sample, signatures)
        if time.monotonic() >= end_s or not is_wanted():
            return
        if pending:
            time.sleep(LOOK_S)


def _ask(poller: _native.Poller, process_id: int) -> None:
    try:
        poller.begin_sample(
            process_id=process_id,
            launches=_MOST_LAUNCHES,
            with_window=True,
            timeout_ns=_SAMPLE_NS,
        )
    except RuntimeError:  # somebody else has asked, and will get the names
        poller.want_window(process_id=process_id)


def _with_sample(
    process_id: int,
    window: _native.Window,
    sample: _native.Sample | None,
    signatures: Mapping[str, _native.Signature],
) -> Recorded:
    functions = sample.functions if sample else []
    _check(functions, signatures)
    return Recorded(
        process_id=process_id,
        window=window,
        kernels=tuple((handle, name) for handle, name, _, _ in functions if name),
        launches=window.launches(sample, signatures) if sample else {},
    )


def _check(
    functions: list[tuple[int, str, list[tuple[int, int]], bool]],
    signatures: Mapping[str, _native.Signature],
) -> None:
    for _, name, parameters, is_cut in functions:
        if name not in signatures or is_cut:
            continue
        try:
            signatures[name].check(name, parameters)
        except ValueError as exc:
            raise UsageError(f"{exc}; correct its signature") from exc


def _sample(poller: _native.Poller, process_id: int, end_s: float) -> _native.Sample | None:
    """Wait a few rounds for the sample: it ends when the window does, or a little later."""
    for _ in range(10):
        sample = poller.take_sample(process_id=process_id)
        if sample is not None:
            return sample
        if time.monotonic() >= end_s:
            break
        time.sleep(LOOK_S)
    return None
