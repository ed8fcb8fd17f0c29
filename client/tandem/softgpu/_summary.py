"""Summarizes a timeline in one pass: figures by client, kernel, stream and GPU.

Memory is bounded whatever the length of the timeline and the names in it. Names, streams and
clients beyond a limit are counted together, and operations too close together to be told apart are
drawn as one.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from tandem.softgpu._buckets import Buckets
from tandem.softgpu._timeline import Row, Timeline

_MOST_ENTRIES = 2000  # in each table
_MOST_OCCUPANTS = 64  # clients in the chart of SM use
_MOST_SPANS = 20_000  # in the picture
_FIRST_GAP_NS = 1
OTHERS = "(others)"
MOVES = ("copy_htod", "copy_dtoh", "copy_dtod", "memset")
_ENGINES = {"kernel": "SMs", "copy_htod": "to device", "copy_dtoh": "from device"}

_Entry = TypeVar("_Entry")


@dataclass(slots=True)
class ClientFigures:
    """What one client did. `sm_ns` is the time of its kernels times their SMs."""

    pid: int = 0
    kernels: int = 0
    sm_ns: float = 0
    copies: int = 0
    to_device_bytes: int = 0
    from_device_bytes: int = 0
    turns: int = 0  # on the compute engine


@dataclass(slots=True)
class KernelFigures:
    """The launches of all kernels with one name."""

    launches: int = 0
    parts: int = 0
    total_ns: int = 0
    longest_ns: int = 0
    bytes: int = 0


@dataclass(slots=True)
class StreamFigures:
    """One stream: how long it was busy, and how long it had ready work that waited."""

    gpu: int = 0
    operations: int = 0
    busy_ns: int = 0
    waited_ns: int = 0
    longest_wait_ns: int = 0


@dataclass(slots=True)
class MoveFigures:
    """All copies of one direction on one GPU."""

    count: int = 0
    bytes: int = 0
    busy_ns: int = 0


class Track(NamedTuple):
    """A line of the picture; streams sort before context switches."""

    is_switches: bool
    owner: int  # the client, or the GPU
    stream: int

    @property
    def label(self) -> str:
        """The display name."""
        if self.is_switches:
            return f"GPU {self.owner} switches"
        return f"client {self.owner}, stream {self.stream}"


@dataclass(slots=True)
class Span:
    """Something to draw: an operation, or several that lie close together."""

    start_ns: int
    end_ns: int
    track: int
    label: str
    count: int = 1


@dataclass(slots=True)
class Summary:
    """The figures of a whole timeline."""

    rows: int = 0
    begin_ns: int | None = None
    end_ns: int = 0
    switches: int = 0
    switch_ns: int = 0
    clients: dict[int | str, ClientFigures] = field(default_factory=dict)
    kernels: dict[str, KernelFigures] = field(default_factory=dict)
    streams: dict[tuple[int, int] | str, StreamFigures] = field(default_factory=dict)
    moves: dict[tuple[int, str], MoveFigures] = field(default_factory=dict)
    engines: dict[tuple[int, str], Buckets] = field(default_factory=dict)
    occupants: dict[int, dict[int | str, Buckets]] = field(default_factory=dict)  # GPU, client
    tracks: list[Track] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    drawn_gap_ns: int = _FIRST_GAP_NS  # spans closer than this are merged
    lumped: set[str] = field(default_factory=set)  # tables with an entry for all others
    _track_numbers: dict[Track, int] = field(default_factory=dict)
    _part_ends: dict[tuple[int, int], int] = field(default_factory=dict)
    _open_spans: dict[int, Span] = field(default_factory=dict)

    @property
    def length_ns(self) -> int:
        """The time from the first start to the last end."""
        return self.end_ns - (self.begin_ns or 0)

    def add(self, row: Row) -> None:
        """Add one row."""
        self.rows += 1
        self.begin_ns = row.start_ns if self.begin_ns is None else min(self.begin_ns, row.start_ns)
        self.end_ns = max(self.end_ns, row.end_ns)
        if row.kind == "switch":
            self._add_switch(row)
        else:
            self._add_operation(row)

    def _entry(
        self, what: str, table: dict[Any, _Entry], key: Hashable, fresh: type[_Entry]
    ) -> _Entry:
        found = table.get(key)
        if found is None:
            if len(table) >= _MOST_ENTRIES:
                self.lumped.add(what)
                key = OTHERS
            found = table.setdefault(key, fresh())
        return found

    def _add_switch(self, row: Row) -> None:
        self.switches += 1
        self.switch_ns += row.end_ns - row.start_ns
        self._entry("clients", self.clients, row.client, ClientFigures).turns += 1
        self._draw(row, Track(is_switches=True, owner=row.gpu, stream=0))

    def _add_operation(self, row: Row) -> None:
        length_ns = row.end_ns - row.start_ns
        client = self._entry("clients", self.clients, row.client, ClientFigures)
        client.pid = row.pid
        if row.kind == "kernel":
            self._add_kernel(row, client, length_ns)
        elif row.kind in MOVES:
            self._add_move(row, client, length_ns)
        if row.kind in _ENGINES and length_ns > 0:
            level = float(row.sms) if row.kind == "kernel" else 1.0
            engine = (row.gpu, _ENGINES[row.kind])
            if engine not in self.engines:
                self.engines[engine] = Buckets()
            self.engines[engine].add(row.start_ns, row.end_ns, level)
            if row.kind == "kernel":
                self._occupant(row).add(row.start_ns, row.end_ns, level)
        self._add_to_stream(row, length_ns)
        if length_ns > 0:
            self._draw(row, Track(is_switches=False, owner=row.client, stream=row.stream))

    def _occupant(self, row: Row) -> Buckets:
        """The client's SMs over time, with the same begin for all so that they can be stacked."""
        occupants = self.occupants.setdefault(row.gpu, {})
        whole, client = self.engines[row.gpu, "SMs"], row.client
        if client not in occupants and len(occupants) >= _MOST_OCCUPANTS:
            self.lumped.add("who has the SMs")
            return occupants.setdefault(OTHERS, Buckets(whole.begin_ns))
        return occupants.setdefault(client, Buckets(whole.begin_ns))

    def _add_kernel(self, row: Row, client: ClientFigures, length_ns: int) -> None:
        kernel = self._entry("kernels", self.kernels, row.name, KernelFigures)
        kernel.parts += 1
        kernel.launches += row.last
        kernel.total_ns += length_ns
        kernel.longest_ns = max(kernel.longest_ns, length_ns)
        kernel.bytes += row.bytes
        client.kernels += row.last
        client.sm_ns += length_ns * row.sms

    def _add_move(self, row: Row, client: ClientFigures, length_ns: int) -> None:
        move = self._entry("moves", self.moves, (row.gpu, row.kind), MoveFigures)
        move.count += row.last
        move.bytes += row.bytes
        move.busy_ns += length_ns
        client.copies += row.last
        client.to_device_bytes += row.bytes if row.kind == "copy_htod" else 0
        client.from_device_bytes += row.bytes if row.kind == "copy_dtoh" else 0

    def _add_to_stream(self, row: Row, length_ns: int) -> None:
        stream = self._entry("streams", self.streams, (row.client, row.stream), StreamFigures)
        key = (row.client, row.op)
        since_ns = row.ready_ns if row.part == 0 else self._part_ends.pop(key, row.start_ns)
        waited_ns = max(0, row.start_ns - since_ns)
        if not row.last and len(self._part_ends) < _MOST_ENTRIES:
            self._part_ends[key] = row.end_ns
        stream.gpu = row.gpu
        stream.operations += row.last
        stream.busy_ns += length_ns
        stream.waited_ns += waited_ns
        stream.longest_wait_ns = max(stream.longest_wait_ns, waited_ns)

    def _draw(self, row: Row, wanted: Track) -> None:
        track = self._track_numbers.get(wanted)
        if track is None:
            if len(self.tracks) >= _MOST_ENTRIES:
                self.lumped.add("tracks")
                return
            track = self._track_numbers[wanted] = len(self.tracks)
            self.tracks.append(wanted)
        span = Span(row.start_ns, row.end_ns, track, row.label)
        if not self._joined(span):
            self.spans.append(span)
            self._open_spans[track] = span
        if len(self.spans) > _MOST_SPANS:
            self._thin_out()

    def _joined(self, span: Span) -> bool:
        """Merge the span into the previous one on its track if possible; return whether it was."""
        before = self._open_spans.get(span.track)
        if before is None or self.drawn_gap_ns == _FIRST_GAP_NS:
            return False
        gap_ns = span.start_ns - before.end_ns
        small = min(span.end_ns - span.start_ns, before.end_ns - before.start_ns)
        if gap_ns > self.drawn_gap_ns or small > self.drawn_gap_ns:
            return False
        if before.label != span.label:
            before.label = "several"
        before.end_ns = max(before.end_ns, span.end_ns)
        before.count += span.count
        return True

    def _thin_out(self) -> None:
        while len(self.spans) > _MOST_SPANS // 2:
            finest_ns = max(1, self.length_ns // 1_000_000)
            self.drawn_gap_ns = max(self.drawn_gap_ns * 2, finest_ns)
            old, self.spans = self.spans, []
            self._open_spans.clear()
            for span in old:
                if not self._joined(span):
                    self.spans.append(span)
                    self._open_spans[span.track] = span


def summarize(timeline: Timeline) -> Summary:
    """Read a timeline to its end.

    Raises:
        NotFoundError: there is no such timeline.
        UsageError: it cannot be read.
    """
    summary = Summary()
    for row in timeline.rows():
        summary.add(row)
    return summary
