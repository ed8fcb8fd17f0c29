"""What jobs did as Chrome trace-event JSON, for ui.perfetto.dev.

Each GPU is a process. Its tracks show who has the turn, and for each job its waits, iterations and
requests, what it computed, and what was moved to the host and back. Counters show the memory it
holds.
"""

from collections.abc import Callable

from tandem._page import plain
from tandem._results import MemoryCurve, MemoryHistory
from tandem.chrome_trace import TraceWriter
from tandem.report.chart import name_of
from tandem.report.series import swaps_of, work_of
from tandem.report.spans import Span, Track
from tandem.units import format_bytes

# Track numbers, all distinct. Tracks of turns, by part, come first; the one of the whole GPU has
# the number of its process, like a main thread.
_PART, _FIRST_OF_JOBS, _FIRST_OF_MEMORY = 1000, 100_000, 1_000_000


class JobTrace:
    """Writes spans as they arrive, and the memory history at the end."""

    def __init__(self, trace: TraceWriter, name_of: Callable[[str], str]) -> None:
        """`name_of` gives a job's display name."""
        self._trace = trace
        self._name_of = name_of
        self._numbers: dict[Track, int] = {}

    def add(self, span: Span) -> None:
        """Write one span."""
        pid = span.track.gpu + 1
        if (number := self._numbers.get(span.track)) is None:
            number = self._numbers[span.track] = self._next_number(span.track)
            self._trace.thread(pid, number, self._title(span.track))
        self._trace.slice(pid, number, span.name, start_ns=span.start_ns, end_ns=span.end_ns)

    def _next_number(self, track: Track) -> int:
        if track.what == "turns":
            return track.gpu + 1 + track.lane * _PART
        return _FIRST_OF_JOBS + len(self._numbers)

    def finish(self, history: MemoryHistory) -> None:
        """Name the GPUs, and write the memory history."""
        for gpu in history.gpus:
            title = plain(f"gpu {gpu.name} {gpu.product_name}")
            self._trace.process(gpu.index + 1, title)
        for place, curve in enumerate(history.curves, _FIRST_OF_MEMORY):
            _write_job(curve, place, self._trace)

    def _title(self, track: Track) -> str:
        if track.what == "turns":
            return f"turns of part {track.lane}" if track.lane else "turns"
        whose = f"{self._name_of(track.job)} {track.what}"
        if track.what == "waits":
            return f"{whose}, thread {track.lane} of {track.pid}"
        return f"{whose} of {track.pid}" + (f", {track.lane + 1}" if track.lane else "")


def _write_job(curve: MemoryCurve, place: int, trace: TraceWriter) -> None:
    pid, name = curve.gpu + 1, name_of(curve)
    computes, moves = 2 * place, 2 * place + 1
    trace.thread(pid, computes, f"{name} computes")
    for work in work_of(curve):
        trace.slice(
            pid,
            computes,
            f"{work.share:.0%} of the gpu",
            start_ns=work.start_ns,
            end_ns=work.end_ns,
            args={"share": work.share},
        )
    swaps = swaps_of(curve)
    if swaps:
        trace.thread(pid, moves, f"{name} is moved")
    for swap in swaps:
        way = "to the host" if swap.is_out else "back to the gpu"
        trace.slice(
            pid,
            moves,
            f"{format_bytes(swap.size_bytes)} {way}",
            start_ns=swap.start_ns,
            end_ns=swap.end_ns,
            args={"bytes": swap.size_bytes},
        )
    for point in curve.points:
        trace.counter(pid, f"{name} resident bytes", point.time_ns, point.resident_bytes)
        if swaps:
            trace.counter(pid, f"{name} swapped bytes", point.time_ns, point.swapped_bytes)
        if any(p.waiting_bytes for p in curve.points):
            trace.counter(pid, f"{name} waiting bytes", point.time_ns, point.waiting_bytes)
