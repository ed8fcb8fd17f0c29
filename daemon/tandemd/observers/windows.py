"""Windows of what processes do, recorded on request: an iteration of each, kept whole."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tandem import _native
from tandem.errors import UsageError

LOOK_S = 0.02
_MOST_LAUNCHES = 65536
_SAMPLE_NS = 5_000_000_000  # the longest that a window may take without an iteration


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
    """Record a new window of every process and yield each when it is complete.

    `signatures` are those of kernels whose names do not contain them. A process that is being
    recorded for another caller has its turn after that. Blocks; for any thread. Windows that are
    not complete within `patience_s`, and those of processes that leave meanwhile, are left out.
    Patience is real time, whatever clock the windows are on.

    Raises:
        UsageError: a signature does not fit its kernel.
    """
    # The sample's number, once requested.
    pending: dict[int, int | None] = dict.fromkeys(process_ids)
    end_s = time.monotonic() + patience_s
    while True:
        for process_id, number in list(pending.items()):
            try:
                if number is None:
                    pending[process_id] = _ask(poller, process_id)
                    continue
                sample = poller.take_sample(process_id=process_id, number=number)
            except KeyError:  # it has left
                del pending[process_id]
                continue
            if sample is not None:
                del pending[process_id]
                yield _recorded(process_id, sample, signatures)
        if not pending or time.monotonic() >= end_s or not is_wanted():
            return
        time.sleep(LOOK_S)


def _ask(poller: _native.Poller, process_id: int) -> int | None:
    try:
        return poller.begin_sample(
            process_id=process_id,
            launches=_MOST_LAUNCHES,
            with_window=True,
            timeout_ns=_SAMPLE_NS,
        )
    except RuntimeError:  # being recorded for another caller; tried again later
        return None


def _recorded(
    process_id: int, sample: _native.Sample, signatures: Mapping[str, _native.Signature]
) -> Recorded:
    assert sample.window is not None  # it was requested
    _check(sample.functions, signatures)
    return Recorded(
        process_id=process_id,
        window=sample.window,
        kernels=tuple((handle, name) for handle, name, _, _ in sample.functions if name),
        launches=sample.window.launches(sample, signatures),
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
