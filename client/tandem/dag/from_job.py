"""Turns what the daemon recorded of a running job into the window of a graph.

The meaning of the records is defined in csrc/core/dag/records.h. Here numbers become names, and the
windows of several processes become one. No order between processes is assumed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tandem import _results
from tandem._native import Operation as NativeOperation
from tandem._native import OperationKind, RecordedOperations, StreamKind, split_phases
from tandem.dag.model import (
    ESTIMATED,
    UNRESOLVED,
    Access,
    Operation,
    Process,
    Stream,
    Thread,
    Unknown,
    Window,
)
from tandem.dag.names import EVENTS_OF_CONTEXT, NAMES, copy_name
from tandem.errors import StateError
from tandem.trace.records import RECORD, RECORD_BYTES, Device

_APART = 0  # handle of the stand-in stream for events of a whole context
_SAMPLED = 32  # kRecordSampled of csrc/core/shm_layout.h
_MARK, _STEP = 11, 1  # kMark there, TANDEM_MARK_STEP of shim/tandem_mark.h
_DIRECTIONS = {1: "htod", 2: "dtoh", 3: "dtod"}
# Telemetry only estimates these from their bytes; launches were measured now and then.
_NOT_MEASURED = (OperationKind.COPY, OperationKind.MEMSET)
_OF_EVENTS = (OperationKind.EVENT_RECORD, OperationKind.EVENT_WAIT, OperationKind.SYNC_EVENT)


def from_job(
    windows: Sequence[_results.Window], source: str, gpus: Sequence[_results.Gpu] = ()
) -> Window:
    """Merge the windows of all processes; `source` is the job's name, `gpus` the known GPUs.

    Raises:
        StateError: no process recorded anything.
    """
    if not any(window.records for window in windows):
        raise StateError(
            f"'{source}' submitted nothing, or ended no iteration, while it was looked at; "
            "`tandem explain` says what it waits for"
        )
    merger = _Merger()
    for window in windows:
        merger.add(window)
    operations = tuple(sorted(merger.operations, key=lambda operation: operation.submitted_ns))
    return Window(
        source=source,
        processes=tuple(merger.processes),
        contexts=merger.contexts,
        streams=tuple(merger.streams),
        threads=tuple(merger.threads),
        operations=operations,
        gaps=_gaps(windows, len(operations)),
        iterations=_iterations(windows, len(operations)),
        is_marked=_is_one(windows) and _has_step(windows[0].records),
        phases=split_phases(windows[0].records) if _is_one(windows) else "",
        device=_one_device(windows, gpus),
        held=tuple(merger.held),
        unknown=Unknown(
            lost_calls=sum(window.lost_records for window in windows),
            is_cut_short=any(window.is_cut for window in windows),
        ),
    )


def _iterations(windows: Sequence[_results.Window], operations: int) -> tuple[tuple[int, int], ...]:
    # Bounds are known only for one iteration of one process; else they are searched for later.
    return ((0, operations),) if _is_one(windows) else ()


def _gaps(windows: Sequence[_results.Window], operations: int) -> tuple[int, ...]:
    # How many records were lost is known, but not where: it may have been before any operation.
    return tuple(range(operations)) if any(window.lost_records for window in windows) else ()


def _has_step(records: bytes) -> bool:
    # If there are step marks, iterations end nowhere else.
    return any(record[1:3] == (_MARK, _STEP) for record in RECORD.iter_unpack(records))


def _is_one(windows: Sequence[_results.Window]) -> bool:
    return len(windows) == 1 and windows[0].iterations == 1


def _one_device(windows: Sequence[_results.Window], gpus: Sequence[_results.Gpu]) -> Device:
    # Operations do not say on which device they ran, so with different devices nothing is claimed.
    # The daemon does not know the memory bandwidth.
    used = {index for window in windows for index in window.gpus}
    counts = {gpu.sm_count for gpu in gpus if gpu.index in used}
    return Device(sm_count=counts.pop()) if len(counts) == 1 else Device()


@dataclass(slots=True)
class _Merger:
    """Renumbers what each process numbers for itself, so that numbers are unique in the window."""

    processes: list[Process] = field(default_factory=list)
    streams: list[Stream] = field(default_factory=list)
    threads: list[Thread] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    held: list[tuple[int, int]] = field(default_factory=list)
    contexts: int = 0
    events: dict[tuple[int, int], int] = field(default_factory=dict)

    def add(self, window: _results.Window) -> None:
        """Add one process."""
        recorded = RecordedOperations(window.records)
        self.held += recorded.held
        process = len(self.processes)
        self.processes.append(Process(pid=window.pid, name=str(window.pid)))
        contexts: dict[int, int] = {}
        threads = self._add_threads(recorded, process)
        streams = self._add_streams(recorded, process, contexts)
        kernels = dict(window.kernels)
        for operation, place in zip(recorded.operations, recorded.places, strict=True):
            record = RECORD.unpack_from(window.records, place * RECORD_BYTES)
            value, is_sampled = record[-1], bool(record[2] & _SAMPLED)
            memory = window.launches.get(value & 0xFFFF_FFFF) if is_sampled else None
            is_guess = operation.kind in _NOT_MEASURED
            self.operations.append(
                Operation(
                    kind=operation.kind,
                    name=_name(operation, value & 0xFFFF_FFFF, kernels),
                    thread=threads[operation.thread],
                    context=self._context(contexts, value >> 32),
                    stream=None if operation.stream is None else streams[operation.stream],
                    submitted_ns=operation.submitted_ns,
                    duration_ns=0 if is_guess else operation.duration_ns,
                    object=self._object(operation, process),
                    bytes=operation.bytes,
                    blocks=operation.blocks,
                    flags=operation.flags
                    & ~(UNRESOLVED if memory and memory.is_all else 0)
                    & ~(ESTIMATED if is_guess else 0),
                    accesses=memory.accesses if memory else _copied(operation, record),
                )
            )

    def _object(self, operation: NativeOperation, process: int) -> int:
        if operation.kind not in _OF_EVENTS:
            return operation.object
        # Processes, above all forked ones, use the same handles for events of their own.
        return self.events.setdefault((process, operation.object), len(self.events) + 1)

    def _add_threads(self, recorded: RecordedOperations, process: int) -> dict[int, int]:
        numbers = {}
        for number, tid in sorted(recorded.threads.items()):
            numbers[number] = len(self.threads)
            self.threads.append(Thread(process=process, tid=tid))
        return numbers

    def _add_streams(
        self, recorded: RecordedOperations, process: int, contexts: dict[int, int]
    ) -> dict[int, int]:
        numbers = {}
        made = 0
        for number, (handle, context, thread, kind) in sorted(recorded.streams.items()):
            numbers[number] = len(self.streams)
            own = handle != _APART and kind is not StreamKind.LEGACY and not thread
            made += own
            if own:
                name = f"stream {made}"
            elif handle == _APART:
                name = EVENTS_OF_CONTEXT
            else:
                name = f"default stream of thread {thread}" if thread else "legacy stream"
            where = self._context(contexts, context)
            self.streams.append(Stream(process=process, context=where, kind=kind, name=name))
        return numbers

    def _context(self, known: dict[int, int], number: int) -> int:
        if number not in known:
            known[number] = self.contexts
            self.contexts += 1
        return known[number]


def _copied(operation: NativeOperation, record: tuple[int, ...]) -> tuple[Access, ...]:
    # Exactly the range that the copy names, even within an allocation; nothing if unresolved.
    if operation.kind is not OperationKind.COPY or operation.flags & UNRESOLVED:
        return ()
    source = record[9] << 32 | record[8]  # source_of of csrc/core/shm_layout.h
    return (source, operation.bytes, True), (operation.object, operation.bytes, False)


def _name(operation: NativeOperation, detail: int, kernels: Mapping[int, str]) -> str:
    if operation.kind is OperationKind.LAUNCH:
        return kernels.get(operation.object) or f"kernel {operation.object:#x}"
    if operation.kind is OperationKind.COPY:
        return copy_name(_DIRECTIONS.get(detail, ""))
    return NAMES[operation.kind]
