"""What iterations consist of and depend on, from windows that are recorded now and then."""

from __future__ import annotations

from collections.abc import Iterable

from tandem import _native
from tandemd.core.model import Usage

ANEW_NS = 10_000_000_000  # between two windows of a process


class Structures:
    """Keeps windows of processes that have iterations fresh. `look` is for the loop's thread."""

    def __init__(self, poller: _native.Poller) -> None:
        self._poller = poller
        self._asked_ns: dict[int, int] = {}

    def look(self, usages: Iterable[Usage], now_ns: int) -> None:
        """Ask for windows that are missing or old."""
        self._asked_ns = {p: at for p, at in self._asked_ns.items() if now_ns - at < ANEW_NS}
        for usage in usages:
            if usage.iteration_ns and usage.process_id not in self._asked_ns:
                self._asked_ns[usage.process_id] = now_ns
                self._poller.want_window(process_id=usage.process_id)

    def lines(self, process_ids: Iterable[int], now_ns: int) -> list[str]:
        """Describe the newest windows of these processes; for any thread."""
        windows = (self._poller.window(process_id=process_id) for process_id in process_ids)
        return [line for window in windows if window for line in describe(window, now_ns)]


def describe(window: _native.Window, now_ns: int) -> list[str]:
    """Describe what the window's iterations consist of, how long they take, and why."""
    if not window.iterations:
        return []
    found, count = _native.RecordedOperations(window.records).analyse(), window.iterations
    works = found.launch_bound.operations
    if not works:
        return []
    age_s = max(0, now_ns - window.end_ns) / 1e9
    lines = [
        f"an iteration recorded {age_s:.1f} s ago: {works / count:.0f} operations on the gpu; "
        f"{_hangs_on(found, count)}; the gpu alone would need "
        f"{_ms(found.gpu_critical_ns / count)} (reconstructed)"
    ]
    unknown = found.unknown
    if window.lost or window.is_cut or unknown.order or unknown.durations:
        lines.append(
            f"not known of that: {window.lost} lost records, {unknown.durations} durations, "
            f"{unknown.order} waits for events" + (", its end" if window.is_cut else "")
        )
    return lines


def _hangs_on(found: _native.Analysis, count: int) -> str:
    """Describe how long an iteration took, and what took the time."""
    parts, took_ns = found.critical_parts, found.critical_ns
    # Time held while its own work ran cost nothing: a job that runs ahead waits for a full window.
    held_ns = min(parts.held_ns, max(0, took_ns - found.gpu_critical_ns))
    rest_ns = max(1, took_ns - held_ns)
    of_host = min(1.0, parts.host_ns / rest_ns)
    what = f"{_ms(rest_ns / count)} depend on the gpu for {1 - of_host:.0%} and on the host for"
    if not held_ns:
        return f"its {what} {of_host:.0%}"
    held = f"it was held for {_ms(held_ns / count)} of its {_ms(took_ns / count)}"
    return f"{held}, and the other {what} {of_host:.0%}"


def _ms(duration_ns: float) -> str:
    return f"{duration_ns / 1e6:.1f} ms"
