"""What a graph is made of, as plain values: the operations of a job and whom they concern.

Numbers are places in the tuples of a Window. Times are nanoseconds of one clock.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from tandem._native import OperationKind, StreamKind
from tandem.trace.records import Device

# Operation.flags, as csrc/core/dag/graph.h has them.
HOST_WAITS, ESTIMATED, UNRESOLVED, UNKNOWN_ORDER, PROGRAMMATIC = 1, 2, 4, 8, 16
STEP = 1  # Mark.kind: an iteration ends
FLAG_NAMES = {
    HOST_WAITS: "host_waits",
    ESTIMATED: "estimated",
    UNRESOLVED: "unresolved",
    UNKNOWN_ORDER: "unknown_order",
    PROGRAMMATIC: "programmatic",
}

# Kinds that take the GPU's time; the others order, or are the host's.
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
    """A stream, under a name that tells it from the others of its process."""

    process: int
    context: int  # numbered from 0 among all contexts of the window
    kind: StreamKind
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """A thread that submits and waits."""

    process: int
    tid: int


# Memory that an operation may touch: first address, in its process, bytes, and whether it only
# reads there. As Dag.add takes them.
Access = tuple[int, int, bool]


class Operation(NamedTuple):
    """One node. There may be millions, and tuples are the fastest to make and to hand over.

    csrc/bindings/dag_build.cpp knows the order of the fields.
    """

    kind: OperationKind
    name: str  # of the kernel; else what it does, such as "copy htod"
    thread: int
    context: int  # current in the thread
    submitted_ns: int
    stream: int | None = None  # None: the host's alone
    duration_ns: int = 0  # on the GPU, of a wait of the host; 0 = not known
    object: int = 0  # function, graph, event, or the address written or allocated
    bytes: int = 0
    blocks: int = 0
    flags: int = 0
    accesses: tuple[Access, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What the program said of itself."""

    place: int  # before that operation
    kind: int  # as shim/tandem_mark.h numbers them
    object: int  # of a phase the hash of its name


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """What a window does not tell."""

    lost_calls: int = 0
    left_out: dict[str, int] = field(default_factory=dict)  # calls that are no nodes, by name
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
    # First operation and the one after the last, ascending; of the thread that launches most, while
    # other threads and processes go on beside it.
    iterations: tuple[tuple[int, int], ...] = ()
    # Of the launches of the one iteration that it is, as `split_phases` says; None: not looked for.
    phases: str | None = None
    marks: tuple[Mark, ...] = ()  # of the process that launches most, in their order
    device: Device = field(default_factory=Device)  # of all operations, as far as it is known
    # When a thread was kept from submitting by Tandem, as (from, to) in ns; in no order.
    held: tuple[tuple[int, int], ...] = ()
    is_marked: bool = False  # the program itself said where iterations end; else they were found
    unknown: Unknown = field(default_factory=Unknown)
