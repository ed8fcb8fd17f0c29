"""The data model of a graph: the operations of a job and what they refer to, as plain values.

Cross-references are indices into the tuples of a Window. Times are nanoseconds of one clock.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from tandem._native import OperationKind, StreamKind
from tandem.trace.records import Device

# Operation.flags, the same as in csrc/core/dag/graph.h.
HOST_WAITS, ESTIMATED, UNRESOLVED, UNKNOWN_ORDER, PROGRAMMATIC = 1, 2, 4, 8, 16
STEP = 1  # Mark.kind: the end of an iteration
FLAG_NAMES = {
    HOST_WAITS: "host_waits",
    ESTIMATED: "estimated",
    UNRESOLVED: "unresolved",
    UNKNOWN_ORDER: "unknown_order",
    PROGRAMMATIC: "programmatic",
}

# Kinds that take time on the GPU; the others only order, or belong to the host.
ON_GPU = frozenset(
    {OperationKind.LAUNCH, OperationKind.GRAPH, OperationKind.COPY, OperationKind.MEMSET}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process of the job."""

    pid: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A stream, with a name that is unique in its process."""

    process: int
    context: int  # numbered from 0 among all contexts of the window
    kind: StreamKind
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """A thread that submits work and waits."""

    process: int
    tid: int


# Memory that an operation may touch: first address in its process, bytes, and whether it only reads
# there. The form that Dag.add takes.
Access = tuple[int, int, bool]


class Operation(NamedTuple):
    """One node. A tuple, as there may be millions: fastest to make and to pass on.

    csrc/bindings/dag_build.cpp depends on the order of the fields.
    """

    kind: OperationKind
    name: str  # of the kernel; else what it does, such as "copy htod"
    thread: int
    context: int  # the thread's current context
    submitted_ns: int
    stream: int | None = None  # None: it concerns only the host
    duration_ns: int = 0  # on the GPU; of a host wait, its length; 0 = not known
    object: int = 0  # function, graph, event, or the address written or allocated
    bytes: int = 0
    blocks: int = 0
    flags: int = 0
    accesses: tuple[Access, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A mark that the program set."""

    place: int  # number of the operation that follows it
    kind: int  # as numbered in shim/tandem_mark.h
    object: int  # for a phase, the hash of its name


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """What a window lacks."""

    lost_calls: int = 0
    left_out: dict[str, int] = field(default_factory=dict)  # calls that became no nodes, by name
    is_cut_short: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Operations in the order of their calls, and what they refer to."""

    source: str  # the file or job
    processes: tuple[Process, ...]
    contexts: int
    streams: tuple[Stream, ...]
    threads: tuple[Thread, ...]
    operations: tuple[Operation, ...]
    gaps: tuple[int, ...] = ()  # operations before which some are missing
    # Each iteration's first operation and the one after its last, ascending, in the thread that
    # launches most; other threads and processes run on meanwhile.
    iterations: tuple[tuple[int, int], ...] = ()
    # For a window of one iteration: the phases of its launches, from `split_phases`; None: not
    # searched.
    phases: str | None = None
    marks: tuple[Mark, ...] = ()  # of the process that launches most, in order
    device: Device = field(default_factory=Device)  # of all operations, as far as known
    # When Tandem kept a thread from submitting, as (from, to) in ns; unordered.
    held: tuple[tuple[int, int], ...] = ()
    is_marked: bool = False  # the program marked its iterations; else they were detected
    unknown: Unknown = field(default_factory=Unknown)
