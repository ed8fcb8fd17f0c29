"""Converts telemetry and turns to trace events. Times are the daemon's clock's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from itertools import islice

from tandem.trace.records import RECORD
from tandemd.core.model import WaitReason
from tandemd.observers.turn_log import TurnPassed

MOST_OF_PROCESS = 2048  # per drain; one event costs this thread some microseconds
_MARK, _WAIT = 11, 14  # shm::RecordKind
KINDS = 1 << _MARK | 1 << _WAIT  # the record kinds used here, one bit each


class TraceKind(IntEnum):
    """The kind of an event; values are those of the proto."""

    TURN = 1
    WAIT = 2
    STEP = 3
    PHASE_BEGIN = 4
    PHASE_END = 5
    REQUEST_BEGIN = 6
    REQUEST_END = 7
    LOST = 8


_OF_MARK = {  # shim/tandem_mark.h
    1: TraceKind.STEP,
    2: TraceKind.PHASE_BEGIN,
    3: TraceKind.PHASE_END,
    5: TraceKind.REQUEST_BEGIN,
    6: TraceKind.REQUEST_END,
}
_REASONS = {int(reason): reason for reason in WaitReason if reason is not WaitReason.NONE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Author:
    """The process that wrote records, in terms known to the caller."""

    job: str
    pid: int
    gpus: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceEvent:
    """A moment; for a wait its end, for lost records the look that found them."""

    kind: TraceKind
    at_ns: int
    jobs: tuple[str, ...]  # for a turn: the jobs that have it from then on
    gpus: tuple[int, ...]
    part: int = 0  # of the GPUs, for which the turn is; 0 = all
    pid: int = 0
    thread: int = 0
    id: int = 0
    duration_ns: int = 0
    reason: WaitReason = WaitReason.NONE
    lost_records: int = 0


def of_turn(turn: TurnPassed, name_of: Callable[[int], str]) -> TraceEvent:
    """Convert a turn, with the names that `name_of` gives jobs."""
    gpus, part = turn.ring
    return TraceEvent(
        kind=TraceKind.TURN,
        at_ns=turn.at_ns,
        jobs=tuple(map(name_of, turn.job_ids)),
        gpus=tuple(sorted(gpus)),
        part=part,
    )


def of_records(
    drained: Iterable[tuple[int, bytes]], authors: dict[int, Author], *, until_ns: int
) -> Iterator[TraceEvent]:
    """Yield waits and marks of the known processes, in order for each.

    Jobs write the records, and may write anything: records with impossible times are left out, and
    so are those beyond `MOST_OF_PROCESS`, which `Losses` counts.
    """
    left = dict.fromkeys(authors, MOST_OF_PROCESS)
    for process_id, packed in drained:
        if (author := authors.get(process_id)) is None:
            continue
        for event in islice(_of_process(packed, author, until_ns), left[process_id]):
            left[process_id] -= 1
            yield event


def _of_process(packed: bytes, author: Author, until_ns: int) -> Iterator[TraceEvent]:
    for record in RECORD.iter_unpack(packed):
        at_ns, kind = record[:2]
        if kind in (_MARK, _WAIT) and 0 < at_ns <= until_ns:
            event = _wait(record, author) if kind == _WAIT else _mark(record, author)
            if event is not None:
                yield event


def _wait(record: tuple[int, ...], author: Author) -> TraceEvent | None:
    at_ns, thread, duration_ns, value = record[0], record[4], record[10], record[11]
    reason = _REASONS.get(value)
    if reason is None or duration_ns > at_ns:
        return None
    return TraceEvent(
        kind=TraceKind.WAIT,
        at_ns=at_ns,
        jobs=(author.job,),
        gpus=author.gpus,
        pid=author.pid,
        thread=thread,
        duration_ns=duration_ns,
        reason=reason,
    )


def _mark(record: tuple[int, ...], author: Author) -> TraceEvent | None:
    kind = _OF_MARK.get(record[2])
    if kind is None:
        return None
    return TraceEvent(
        kind=kind,
        at_ns=record[0],
        jobs=(author.job,),
        gpus=author.gpus,
        pid=author.pid,
        thread=record[4],
        id=record[6],
    )
