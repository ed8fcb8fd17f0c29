"""Recordings of a synthetic job in the format of `tandem trace calls`, to measure their readers.

As in bench/dag.cpp, one thread launches on 16 streams in turn. Each launch reads two buffers and
writes a third; there is an event and a wait for it every 8 launches, and a host synchronization
every 1,000.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import NamedTuple, TypeVar

from tandem._native import TRACE_CALLS
from tandem.trace.file import FileWriter, new_header
from tandem.trace.records import (
    CALL,
    CHUNK,
    DEVICE_TIME,
    FUNCTION,
    PROCESS,
    RECORD,
    RECORD_BYTES,
    TEXT,
    WORDS,
)
from tandem.trace.table import parse_table

PID, CONTEXT, STREAM, EVENT, KERNEL = 100, 0xC0, 0x5500, 0x4400, 0xF000
STREAMS, EVENTS, KERNELS, BUFFERS, BUFFER_BYTES = 16, 8, 40, 512, 1 << 20
SUBMIT_NS, CALL_NS, KERNEL_NS = 2_000, 500, 20_000
_NON_BLOCKING, _TIMED, _MONOTONIC = 32, 4, 1
_NO_STREAM = 2**64 - 1
_PAYLOAD = struct.Struct("<8xB7x48s")  # a record that continues an event
_SIZES = (8, 8, 8, 4)  # of the parameters of void k(const float*, const float*, float*, int)
_DEVICE = (132, 4_800_000_000_000)
LAUNCHES_AN_EVENT, LAUNCHES_A_WAIT = 8, 1_000


def write(path: Path, operations: int) -> None:
    """Write a recording of at least so many operations, on one device, with all launches timed."""
    table = parse_table(TRACE_CALLS)
    job = _Job({call.name: index for index, call in enumerate(table.calls)})
    with path.open("wb", buffering=0) as file:
        header = new_header(["made-up"], device_times=True, table=table)
        writer = FileWriter(file, header)
        writer.add(_chunk(job.begin()))
        for turn in count():
            writer.add(_chunk(job.launches(turn)))
            if job.operations >= operations:
                break
        writer.finish(status=0, lost=0)


class _Job:
    """Generates the job's events, and counts its calls, each of which is an operation."""

    def __init__(self, indices: dict[str, int]) -> None:
        self.operations = 0
        self._indices = indices

    def begin(self) -> Iterator[bytes]:
        """Yield the events before the first launch."""
        yield _event(_Head(PROCESS, object=PID, bytes=_MONOTONIC, stream=1), _DEVICE, b"made-up")
        offsets = [8 * place << 32 | size for place, size in enumerate(_SIZES)]
        for kernel in range(KERNELS):
            name = b"_Z3k%02dPKfS0_Pfi" % kernel
            yield _event(_Head(FUNCTION, object=KERNEL + kernel), offsets, name)
        for buffer in range(BUFFERS):
            yield self._call("cuMemAlloc_v2", 0x9, _address(buffer), BUFFER_BYTES)

    def launches(self, turn: int) -> Iterator[bytes]:
        """Yield the launches of the given turn, up to and including the host's wait."""
        for number in range(turn * LAUNCHES_A_WAIT, (turn + 1) * LAUNCHES_A_WAIT):
            yield from self._launch(number)
        yield self._call("cuCtxSynchronize")

    def _launch(self, number: int) -> Iterator[bytes]:
        stream, kernel = STREAM + number % STREAMS, KERNEL + number % KERNELS
        buffers = (_address(number * 7), _address(number * 13 + 1), _address(number * 29 + 2))
        words = (kernel, 256, 1, 1, 256, 1, 1, 0, stream, 0x1000, 0, *buffers, 5)
        yield self._call("cuLaunchKernel", *words, stream=stream, is_timed=True)
        yield _event(_Head(DEVICE_TIME, object=self.operations, duration=KERNEL_NS))
        if number % LAUNCHES_AN_EVENT == 0:
            event, other = (
                EVENT + number // LAUNCHES_AN_EVENT % EVENTS,
                STREAM + (number + 5) % STREAMS,
            )
            yield self._call("cuEventRecord", event, stream, stream=stream)
            yield self._call("cuStreamWaitEvent", other, event, 0, stream=other)

    def _call(
        self, name: str, *words: int, stream: int = _NO_STREAM, is_timed: bool = False
    ) -> bytes:
        self.operations += 1
        head = _Head(
            CALL,
            ticks=self.operations * SUBMIT_NS,
            flags=_NON_BLOCKING | (_TIMED if is_timed else 0),
            slot=self._indices[name],
            stream=stream,
            object=self.operations,
            bytes=CONTEXT,
            duration=CALL_NS,
        )
        return _event(head, words)


def _address(buffer: int) -> int:
    return (1 + buffer % BUFFERS) * BUFFER_BYTES


def _chunk(events: Iterable[bytes]) -> bytes:
    records = b"".join(events)
    length = len(records) // RECORD_BYTES
    return RECORD.pack(0, CHUNK, 0, 0, PID, 0, PID, length, 0, 0, 0, 0) + records


class _Head(NamedTuple):
    """Fields of an event's first record, as in csrc/core/trace_layout.h."""

    kind: int
    ticks: int = 0
    flags: int = 0
    slot: int = 0
    stream: int = 0
    object: int = 0
    bytes: int = 0
    duration: int = 0


def _event(head: _Head, words: Sequence[int] = (), text: bytes = b"") -> bytes:
    first = (head.ticks, head.kind, head.flags, head.slot, PID, head.stream, head.object)
    more = [_PAYLOAD.pack(WORDS, struct.pack(f"<{len(six)}Q", *six)) for six in _parts(words, 6)]
    more += [_PAYLOAD.pack(TEXT, part) for part in _parts(text, 48)]
    return RECORD.pack(*first, head.bytes, len(words), len(text), head.duration, 0) + b"".join(more)


_Part = TypeVar("_Part", Sequence[int], bytes)


def _parts(whole: _Part, size: int) -> Iterator[_Part]:
    return (whole[at : at + size] for at in range(0, len(whole), size))
