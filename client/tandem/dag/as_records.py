"""Operations as telemetry records, for the detectors of iterations and of phases."""

from tandem._native import OperationKind
from tandem.dag.model import Mark, Operation
from tandem.dag.names import FOUND_DONE, copy_name
from tandem.trace.records import RECORD

_KINDS = {  # shm::RecordKind
    OperationKind.LAUNCH: 1,
    OperationKind.COPY: 2,
    OperationKind.MEMSET: 3,
    OperationKind.ALLOC: 4,
    OperationKind.FREE: 5,
    OperationKind.SYNC_STREAM: 6,
    OperationKind.SYNC_EVENT: 6,
    OperationKind.SYNC_CONTEXT: 6,
    OperationKind.HOST_FUNC: 10,
    OperationKind.GRAPH: 13,
}
_MARK = 11  # shm::RecordKind too
_QUERIED = 8  # shm::kRecordQueried
_DIRECTIONS = {copy_name("htod"): 1, copy_name("dtoh"): 2}


def is_looked_at(operation: Operation) -> bool:
    """Whether the detectors use this operation."""
    return operation.kind in _KINDS


def record_of_mark(mark: Mark, place: int) -> bytes:
    """The mark as a 64-byte record, with `place` as its time."""
    return RECORD.pack(place, _MARK, mark.kind, 0, 0, 0, mark.object, 0, 0, 0, 0, 0)


def record_of(operation: Operation, place: int) -> bytes:
    """The operation as a 64-byte record, with `place` as its time."""
    kind = _KINDS[operation.kind]
    flags = _QUERIED if operation.name == FOUND_DONE.get(operation.kind) else 0
    value, size = _DIRECTIONS.get(operation.name, 0), operation.bytes
    return RECORD.pack(place, kind, flags, 0, 0, 0, operation.object, size, 0, 0, 0, value)
