"""Events of a recorded trace, as messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tandem._wire import tandem_pb2 as pb
from tandemd.edges.messages import duration, timestamp
from tandemd.observers.trace_events import TraceEvent

MOST_EVENTS = 4096  # per chunk: some hundred kilobytes


def trace_chunks(
    events: Sequence[TraceEvent], wall_ns: Callable[[int], int]
) -> Iterator[pb.TraceChunk]:
    """Yield as many chunks as needed; `wall_ns` converts a moment to Unix time."""
    for start in range(0, len(events), MOST_EVENTS):
        part = events[start : start + MOST_EVENTS]
        yield pb.TraceChunk(events=[_message(event, wall_ns) for event in part])


def _message(event: TraceEvent, wall_ns: Callable[[int], int]) -> pb.TraceEvent:
    message = pb.TraceEvent(
        kind=pb.TraceEvent.Kind.ValueType(event.kind),
        time=timestamp(wall_ns(event.at_ns)),
        jobs=event.jobs,
        gpus=event.gpus,
        part=event.part,
        pid=event.pid,
        thread=event.thread,
        id=event.id,
        reason=pb.WaitReason.ValueType(event.reason),
        lost_records=event.lost_records,
    )
    if event.duration_ns:
        message.duration.CopyFrom(duration(event.duration_ns))
    return message
