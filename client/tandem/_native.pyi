"""Types of the pybind11 module: the daemon's side of shared memory, and the attach messages.

Thread-safety: a `Process` belongs to the thread that made it, except `stamp`; `Poller.wake` may be
called from any thread; everything else of `Poller` from the one that owns it. Calls that wait
release the GIL. Times are nanoseconds of the attach clock (`CLOCK_MONOTONIC`, or virtual time).
"""

import enum
from collections.abc import Sequence
from typing import final

PROTOCOL_VERSION: int
LAYOUT_VERSION: int
NO_LIMIT: int
PRESENCE_MAX: int

@final
class Request:
    job_class: int
    sm_percent: int
    memory_bytes: int
    memory_min_bytes: int
    slo_p99_ns: int
    preemptible: int
    name: str
    group: str

@final
class Hello:
    layout_min: int
    layout_max: int
    shim_version: int
    clock: int
    job_id: int
    request: Request
    device_uuids: list[bytes]

@final
class Register:
    request: Request
    command: str

@final
class Mapped: ...

@final
class Shared:
    key: int

@final
class Uses:
    device_uuid: bytes

def decode(packet: bytes) -> Hello | Register | Mapped | Shared | Uses:
    """Parse one packet of a shim or of `tandem run`.

    Raises:
        ValueError: garbage, truncated, unknown type or another protocol; the text says which.
    """

def encode_welcome(
    *, process_id: int, job_id: int, clock: int, layout_version: int = ...
) -> bytes: ...
def encode_refused(*, code: int, reason: str) -> bytes: ...
def encode_registered(*, job_id: int) -> bytes: ...
def encode_presence(*, index: int, job_class: int, gone: bool = ...) -> bytes: ...

@final
class Snapshot:
    """One copied and bounds-checked look at a process; all figures are the job's own claims."""

    process_id: int
    busy: bool  # some live slot has work the GPU has not finished
    live_slots: int
    open_segments: int
    device_bytes: int
    peak_bytes: int
    alloc_count: int
    refused_count: int
    waiting_threads: int
    wait_reason: int
    wait_since_ns: int
    wait_total_ns: tuple[int, int, int, int, int]  # by WaitReason
    launches: int
    steps: int
    last_step_ns: int
    phase_hash: int
    critical_until_ns: int
    linger_ns: int
    ungated: bool
    capturing: int
    helper_tick_ns: int
    presence_busy_until_ns: int
    records: int
    dropped_records: int
    iterations: int  # ends: marked ones, before the first mark those found in its records
    iteration_ns: int  # their usual length; 0 = none is found
    iteration_launches: int
    iteration_bytes: int  # device memory when the newest ended, marked or found
    work_ns: int  # predicted GPU time of what was submitted
    timed_count: int  # submissions of which it is known
    phases: tuple[int, int, int]  # forward, backward, update: thousandths; all 0 = not known
    phases_marked: bool  # by the job itself
    exclusive_ns: int  # GPU time while no other group was busy, charged by the poller
    shared_ns: int  # its part of intervals in which several groups were busy: an estimate
    last_busy_ns: int

def split_phases(records: bytes) -> str:
    """The phase of each launch in the records of one iteration: F, B or U; "-" is none of them.

    Marks of phases win. Empty: not known. Raises ValueError when the length is no multiple of 64.
    """

@final
class IterationFinder:
    """Finds the iterations in one thread's telemetry records."""

    def take(self, records: bytes) -> list[int]:
        """Records of 64 bytes, oldest first; the ticks at which iterations ended among them.

        Raises ValueError when the length is no multiple of 64.
        """

    def gap(self) -> None:
        """Records were lost here."""

    @property
    def found(self) -> bool: ...
    @property
    def ends(self) -> int: ...
    @property
    def duration(self) -> int:
        """Ticks of the usual iteration; 0 = not known."""

    @property
    def launches(self) -> int:
        """Launches of the usual iteration; 0 = not known."""

@final
class Process:
    """The three memfds of one attached process."""

    def __init__(self, *, process_id: int, job_id: int) -> None:
        """Create, initialise and seal them. Raises OSError when the kernel refuses."""

    @property
    def process_id(self) -> int: ...
    @property
    def fds(self) -> tuple[int, int, int]:
        """Command, state, presence: to send with SCM_RIGHTS, still owned by this object."""

    def seal_presence(self) -> int:
        """After MAPPED: forbid further writable maps; return the presence fd for peers."""

    def set_gate(self, *, hold: bool) -> int:
        """Open or close the gate, waking waiters; return the new gate word. No-op if unchanged."""

    def set_window(self, *, segments: int, segment_ns: int) -> None: ...
    def set_class(self, *, job_class: int) -> None: ...
    def set_linger(self, *, linger_ns: int, limit_ns: int) -> None: ...
    def set_flags(
        self, *, honour_presence: bool, telemetry: bool, released: bool = ...
    ) -> None: ...
    def set_presence_mask(self, *, mask: int) -> None: ...
    def set_memory_limit(self, *, limit_bytes: int) -> None: ...
    def set_stale(self, *, stale_ns: int) -> None: ...
    def stamp(self, *, tick_ns: int) -> None: ...
    def close(self) -> None: ...

@final
class Poller:
    """Copies state pages, drains telemetry rings, charges GPU time, stamps the heartbeat.

    With `start` two native threads do that on CLOCK_MONOTONIC: the poller every `period_ns`
    (slowing to `idle_period_ns` when no process is busy or waiting), and the heartbeat every 100 ms
    as long as the owner is inside `wait` or came back to it within the last second: a hung core
    stops the heartbeat. Without `start` (virtual clock) the owner calls `poll`.
    """

    def __init__(self, *, period_ns: int = ..., idle_period_ns: int = ...) -> None: ...
    def add(self, process: Process, *, group: int, gpu: int = ...) -> None: ...
    def remove(self, *, process_id: int) -> None: ...
    def regroup(self, *, process_id: int, group: int) -> None:
        """From now on its GPU time is charged to that group.

        Raises:
            KeyError: the process is not polled.
        """

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def poll(self, *, now_ns: int) -> bool:
        """One round, and a heartbeat; True if something a scheduler cares about changed."""

    def wait(self, *, timeout_ns: int) -> bool:
        """Block until a notable change, `wake` or the timeout; True unless it was the timeout.

        Notable: a process became busy or idle, a thread of it began or ended waiting, a step, phase
        or doorbell, fail-open began or ended.
        """

    def wake(self) -> None: ...
    def snapshots(self) -> list[Snapshot]: ...
    def drain_records(self, *, limit: int = ...) -> list[tuple[int, bytes]]:
        """(process_id, packed shm::Record array) since the last call, oldest first; bounded buffer.

        Records are kept from the first call on, and for five seconds after each. `ticks` is already
        converted to nanoseconds; 0 where the job has not said how.
        """

    def want_window(self, *, process_id: int) -> None:
        """Record what the process does during its next iteration. KeyError if it is not polled."""

    def window(self, *, process_id: int) -> Window | None:
        """The newest that is complete; None if there is none, or no such process."""

@final
class RecordedOperations:
    """What the telemetry records of one process mean; records as Window has them.

    Raises ValueError when the length is no multiple of 64.
    """

    def __init__(self, records: bytes) -> None: ...
    @property
    def operations(self) -> list[Operation]:
        """Marks and the like are left out; threads and streams are numbers of those below."""

    @property
    def places(self) -> list[int]:
        """For each operation, which record it was."""

    @property
    def streams(self) -> dict[int, tuple[int, int, int, StreamKind]]:
        """Handle, context, and for per-thread default streams (handle 2) the thread."""

    @property
    def threads(self) -> dict[int, int]:
        """Thread ids."""

@final
class Window:
    """What a process did, from the end of one iteration to that of another.

    Where none ends within five seconds: whatever it did in these. Times are nanoseconds of the
    attach clock.
    """

    @property
    def begin_ns(self) -> int: ...
    @property
    def end_ns(self) -> int: ...
    @property
    def first_iteration(self) -> int:
        """How many iterations had ended before."""

    @property
    def iterations(self) -> int:
        """How many whole ones it has; 0 = none is known."""

    @property
    def lost(self) -> int:
        """Records that were overwritten before they were read."""

    @property
    def is_cut(self) -> bool:
        """It goes on after the last record."""

    @property
    def records(self) -> bytes:
        """Packed shm::Record, by when their calls had effect; `ticks` are nanoseconds."""

TRACE_VERSION: int
TRACE_CALLS: str
CALL_COVERAGE: str  # JSON; see tandem._coverage

@final
class Tracer:
    """The memory traced processes write their calls to. Belongs to one thread."""

    def __init__(self, *, device_times: bool, wait_ms: int, key: int) -> None:
        """Make it; a traced thread waits `wait_ms` for room before it counts a loss.

        Raises:
            OSError: a system call failed; the text says which.
        """

    @property
    def fd(self) -> int:
        """What a traced process opens, as /proc/PID/fd/N; stays ours."""

    @property
    def lost(self) -> int:
        """Calls that were not recorded, so far."""

    @property
    def threads(self) -> int:
        """Traced threads that have not been found to have ended."""

    def drain(self, *, look_for_dead: bool) -> bytes:
        """The records written since the last time: chunks, each with a kChunk record before it.

        With `look_for_dead` it also asks the kernel which threads were killed, and frees theirs.
        """

class OperationKind(enum.Enum):
    """What a node of a Dag is."""

    LAUNCH = 0
    GRAPH = 1
    COPY = 2
    MEMSET = 3
    MEMOP = 4
    HOST_FUNC = 5
    EVENT_RECORD = 6
    EVENT_WAIT = 7
    SYNC_STREAM = 8
    SYNC_EVENT = 9
    SYNC_CONTEXT = 10
    ALLOC = 11
    FREE = 12

class EdgeKind(enum.Enum):
    """Why a node of a Dag comes after another.

    OVERLAP: it begins after the other has begun and ends after it has ended. All others: it
    begins after the other, and whatever that came after in its stream or thread, has ended.
    """

    STREAM = 0
    EVENT = 1
    LEGACY = 2
    HOST = 3
    OVERLAP = 4
    READ_AFTER_WRITE = 5
    WRITE_AFTER_READ = 6
    WRITE_AFTER_WRITE = 7
    UNKNOWN_DATA = 8

class StreamKind(enum.Enum):
    """How a stream goes with the legacy default stream of its context."""

    BLOCKING = 0
    NON_BLOCKING = 1
    LEGACY = 2

@final
class Operation:
    """One operation of a job. Times are ns of one clock; 0 = not known.

    `object` is a function, a graph, an event, or the address written or allocated. Flags: 1 the
    host waits for it, 2 its duration is predicted, 4 it may touch more memory than is known,
    8 it may wait for more than is known, 16 it may begin before the kernel before it ends.
    """

    def __init__(
        self,
        kind: OperationKind,
        *,
        thread: int,
        stream: int = ...,
        object: int = 0,
        bytes: int = 0,
        submitted_ns: int = 0,
        duration_ns: int = 0,
        blocks: int = 0,
        flags: int = 0,
    ) -> None: ...
    @property
    def kind(self) -> OperationKind: ...
    @property
    def flags(self) -> int: ...
    @property
    def thread(self) -> int: ...
    @property
    def stream(self) -> int | None: ...
    @property
    def object(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def submitted_ns(self) -> int: ...
    @property
    def duration_ns(self) -> int: ...
    @property
    def blocks(self) -> int: ...

@final
class Dag:
    """The dependency graph of operations, added in the order of their calls. Of one thread.

    Raises ValueError for a context, stream or thread that it did not number, and IndexError for a
    node that is not there. `most_nodes` is how many it holds at once, at most 2**30: with more,
    `add` raises ValueError until some are retired. Streams and threads together are at most 4096 at
    once, contexts 65,536 ever: with more, ValueError.
    """

    def __init__(self, *, most_nodes: int = ...) -> None: ...
    def add_context(self) -> int: ...
    def add_stream(self, context: int, kind: StreamKind) -> int: ...
    def add_thread(self, context: int) -> int:
        """A host thread whose waits for a whole context are for `context`."""

    def use_context(self, thread: int, context: int) -> None: ...
    def end_stream(self, stream: int) -> None:
        """It gets nothing more. Its number is given anew when all that is in it is retired.

        The legacy stream of a context stays.
        """

    def end_thread(self, thread: int) -> None:
        """The same of a thread."""

    def end_event(self, event: int) -> None:
        """Forget what the event stands for: it is destroyed, and another may get its number."""

    def add(
        self, operation: Operation, accesses: Sequence[tuple[int, int, bool]] | None = None
    ) -> int:
        """The node of the next operation, counted from 0.

        `accesses` are (first address, bytes, only read) of the memory that it uses; None = it is
        not known, except of memsets, allocations and frees, which say so themselves. What uses
        unknown memory gets flag 4.
        """

    def lose(self) -> None:
        """Operations are missing here."""

    def retire(self, before: int) -> None:
        """Forget the nodes before that one."""

    def node(self, id: int) -> Operation: ...
    def edges(self, id: int) -> list[tuple[int, EdgeKind]]:
        """From where order edges lead to a node; those from forgotten nodes are left out."""

    def data_edges(self, id: int) -> list[tuple[int, EdgeKind]]:
        """The same of data edges: why an order is needed, not that it is kept."""

    def accesses(self, id: int) -> list[tuple[int, int, bool]]:
        """The memory that a node uses, as far as it is known."""

    def before(self, first: int, second: int) -> bool:
        """Whether the first has ended for sure when the second begins."""

    def may_overlap(self, first: int, second: int) -> bool:
        """Whether they may use the same bytes, one of them writing."""

    def independent(self, first: int, second: int) -> bool:
        """Whether no order is kept between the two, and none is needed; False is no claim."""

    @property
    def begin(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def bytes(self) -> int: ...

@final
class AnalysisUnknown:
    """What an analysis could not know of its window: counts of nodes."""

    @property
    def durations(self) -> int:
        """GPU operations without a duration, taken to last 0 ns."""

    @property
    def estimated(self) -> int:
        """GPU operations whose duration is predicted, not measured."""

    @property
    def accesses(self) -> int:
        """GPU operations that may touch more memory than is known."""

    @property
    def order(self) -> int:
        """Operations that may have had to wait for more than is known."""

@final
class CriticalParts:
    """Of what the critical path consists. The parts add up to its length."""

    @property
    def gpu_ns(self) -> int:
        """GPU operations."""

    @property
    def host_ns(self) -> int:
        """The host between its waits and what it submitted, and host functions."""

    @property
    def earlier_ns(self) -> int:
        """Work from before the window that the path begins behind."""

    @property
    def other_ns(self) -> int:
        """Stream memory operations, and between measured times what the graph has no reason for."""

@final
class Analysis:
    """What `analyse` found. Lists "by node" have an entry for each of the nodes [first, last).

    Times are ns of the clock of the submissions. Nothing in it changes afterwards.
    """

    @property
    def first(self) -> int: ...
    @property
    def last(self) -> int: ...
    @property
    def unknown(self) -> AnalysisUnknown: ...
    @property
    def starts_ns(self) -> list[int]:
        """By node: when it began, reconstructed unless measured. Of a host's wait: its call."""

    @property
    def ends_ns(self) -> list[int]:
        """By node: when it ended. Of a host's wait: when what it waited for had ended."""

    @property
    def critical_path(self) -> list[int]:
        """Nodes that the window's length hangs on, in order, submissions included."""

    @property
    def critical_ns(self) -> int:
        """From the window's first start to its last end."""

    @property
    def critical_parts(self) -> CriticalParts: ...
    @property
    def gpu_critical_path(self) -> list[int]:
        """The longest chain of what has to run one after the other, in order."""

    @property
    def gpu_critical_ns(self) -> int:
        """Its GPU operations' durations: the least that an infinitely fast host would need."""

    @property
    def data_critical_path(self) -> list[int] | None:
        """The longest chain by buffers alone; None where accesses of the window are not known."""

    @property
    def data_critical_ns(self) -> int | None:
        """Its length: the least if only what is read and written had to be waited for."""

    @property
    def slack_ns(self) -> list[int]:
        """By node: how much later it could begin without making the window longer."""

def analyse(
    dag: Dag,
    first: int,
    last: int,
    *,
    since: int | None = None,
    measured: Sequence[tuple[int, int] | None] = (),
) -> Analysis:
    """Analyse the nodes [first, last) of a graph, for example those of an iteration.

    Times are reconstructed from node `since` on (default: the oldest that there is), so that work
    from before the window delays it as it did. `measured` may give start and end, in ns, of each
    node of the window; they win over what would be reconstructed.

    Raises:
        IndexError: there are no such nodes.
        ValueError: `measured` has not one entry for each node of the window.
    """
