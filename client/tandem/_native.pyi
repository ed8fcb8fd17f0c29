"""Types of the pybind11 module: the daemon's side of shared memory, and the attach messages.

Thread-safety: a `Process` belongs to the thread that made it, except `stamp`; `Poller.wake` may be
called from any thread; everything else of `Poller` from the one that owns it. Calls that wait
release the GIL. Times are nanoseconds of the attach clock (`CLOCK_MONOTONIC`, or virtual time).
"""

import enum
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import final

PROTOCOL_VERSION: int
LAYOUT_VERSION: int
ABILITY_HOST_FILE: int  # of Hello.abilities: the shim takes files
ABILITY_HOST_BACK: int  # and gives memory of the host back
ABILITY_HAS_SET: int  # the process was attached before, and stays on the SMs it was told then
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
    memory_percent: int  # where memory_bytes is not said; 0 = not said either
    wait_memory_s: int
    swappable: int
    name: str
    group: str

@final
class Hello:
    promise: tuple[int, int]  # persistent and ephemeral bytes; both 0 = not said
    space: tuple[int, int]  # number of SMs, and Isolation of wire.h; 0 = not said
    layout_min: int
    layout_max: int
    shim_version: int
    clock: int
    job_id: int
    abilities: int  # bits ABILITY_..
    idle_release_s: int  # 0 = not said
    mps_percent: float  # of the SMs that its environment lets it have under MPS; 0 = not said
    request: Request
    device_uuids: list[bytes]

@final
class Register:
    promise: tuple[int, int]
    space: tuple[int, int]
    idle_release_s: int  # 0 = not said
    gpu: str  # index or UUID; empty = not said
    request: Request
    command: str
    no_wait: bool  # refuse it where it would have to stand in line
    asks_again: bool  # it may be told that what to say is not known yet
    only_asks: bool  # there is to be no job

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
    *,
    process_id: int,
    job_id: int,
    clock: int,
    layout_version: int = ...,
    swappable: bool = ...,
) -> bytes: ...
def encode_refused(*, code: int, reason: str) -> bytes: ...
def encode_registered(
    *, job_id: int, job_class: int = ..., environment: str = ..., told: str = ...
) -> bytes:
    """`environment`: lines NAME=VALUE.

    Raises:
        ValueError: they are too long for a packet.
    """

def encode_host_pool(*, bytes: int) -> bytes:
    """With one descriptor: a sealed memfd of which `bytes` are for the process's pages.

    Raises:
        ValueError: `bytes` is not a positive multiple of 2 MiB.
    """

def encode_host_back(*, order: int, since: int, pool: int) -> bytes:
    """By `order` a pool that has nothing in it goes back, unless one came after `since`.

    `pool` counts from 1 as they were sent on the connection.

    Raises:
        ValueError: `order` or `pool` is 0.
    """

def encode_host_file(*, order: int, since: int, pool: int) -> bytes:
    """What was in a pool while order `since` was the newest is in the file that goes with it.

    `pool` counts from 1 as they were sent on the connection.

    Raises:
        ValueError: `order` or `pool` is 0.
    """

def encode_swap() -> bytes:
    """Look at the target that Process.set_resident_target has set."""

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
    refused_by: tuple[int, int, int]  # the quota, the device, the line
    memory_ticket: int  # of the request for memory that waits; 0 = none
    memory_wanted_bytes: int
    memory_round: int  # in which it tried in vain; 0 = has not
    memory_of_quota: bool  # the limit is in its way, not the device
    memory_alone: bool  # all threads of the process that use the device wait for memory
    swappable_bytes: int  # of device_bytes; of these, swapped_bytes are on the host
    swapped_bytes: int
    swap_done: int  # the newest order that has ended
    swap_outcome: int  # SwapOutcome: how
    swap_out_bytes: (
        int  # copied to the host so far, in swap_out_ns; the waits between count in neither
    )
    swap_out_ns: int
    swap_in_bytes: int  # and back
    swap_in_ns: int
    filed_bytes: int  # of swapped_bytes, in files
    waiting_threads: int
    wait_reason: int
    wait_since_ns: int
    wait_total_ns: tuple[int, int, int, int, int]  # by WaitReason
    launches: int
    steps: int
    last_step_ns: int
    phase_hash: int
    critical_until_ns: int
    listens: bool
    pause_ready: int
    iteration_peak_bytes: int  # by the job's marks: most held since the first,
    iteration_end_bytes: int  # and at one
    stopped: int  # after how many steps a limit of marks stopped it last; 0 = never
    stopped_phases: int  # the same of phases begun
    begun_phases: int
    # First group, groups and SMs a group: no stream that goes with the process has work outside.
    in_set: tuple[int, int, int] | None
    in_turn: int  # `turn` of `set_sms` as of which that is so; 0 = not known
    following_streams: int
    staying_streams: tuple[int, int, int, int, int, int]  # by StayReason
    runs_graphs: bool  # since it attached; they do not go there
    set_switches: int
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
    gap_p50_ns: int  # latency class: how much longer half of its gaps go on; 0 = not known
    gap_p90_ns: int  # the same of nine in ten
    iteration_bytes: int  # device memory when the newest ended, marked or found
    marks_requests: bool  # or it did: only marked ones are its requests
    work_ns: int  # predicted GPU time of what was submitted
    step_work_ns: int  # the same when the newest step was marked
    timed_count: int  # submissions of which it is known
    phases: tuple[int, int, int]  # forward, backward, update: thousandths; all 0 = not known
    phases_marked: bool  # by the job itself
    exclusive_ns: int  # GPU time while no other group was busy, charged by the poller
    shared_ns: int  # its part of intervals in which several groups were busy: an estimate
    even_ns: int  # the same, had these been split evenly among the groups

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

    def set_pause(self, *, number: int) -> None:
        """Tell a program that listens of the pause of that number; 0: there is none."""
    def set_mark_limit(self, *, phases: bool, number: int) -> None:
        """Stop the process at its so manyth end of a step, or beginning of a phase; 0 = never."""

    def set_window(self, *, segments: int, segment_ns: int) -> None: ...
    def set_class(self, *, job_class: int) -> None: ...
    def set_linger(self, *, linger_ns: int, limit_ns: int) -> None: ...
    def set_flags(
        self, *, honour_presence: bool, telemetry: bool, released: bool = ...
    ) -> None: ...
    def set_presence_mask(self, *, mask: int) -> None: ...
    def set_memory_limit(self, *, limit_bytes: int) -> None: ...
    def set_memory_lease(self, *, lease_bytes: int) -> None:
        """What it may hold for now; the limit itself stays. 0 and 2**64 - 1: as the limit says."""

    def set_memory_wait(self, *, wait_ns: int) -> None: ...
    def set_memory_place(self, *, ticket: int, round: int, refused: bool, line_ahead: bool) -> None:
        """Tell which waiting request may try, or is refused; a new round lets it try again."""
    def set_resident_target(self, *, bytes: int, order: int) -> None:
        """Say how much of what can be swapped may be on the device, 2**64 - 1 for all of it.

        `order`, 1 to 2**32 - 1, is what Snapshot.swap_done names when it has ended. The process
        looks once it gets `encode_swap()`.
        """

    def set_lane(self, *, holds: bool) -> None: ...
    def set_sms(self, *, first: int, count: int, group_sms: int, turn: int = 0) -> None:
        """Which of the groups of SMs to use; no group stands for the whole device.

        Raises ValueError: no set: `group_sms` is 0 or above 4095, another figure above 1023.
        """

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

    Without `detects` nothing is looked for in telemetry: no iterations, phases, gaps or windows.
    """

    def __init__(
        self, *, period_ns: int = ..., idle_period_ns: int = ..., detects: bool = ...
    ) -> None: ...
    def add(self, process: Process, *, group: int, gpu: int = ...) -> None: ...
    def remove(self, *, process_id: int) -> Snapshot:
        """Poll the process no longer; a last look at it, its telemetry left out.

        Raises:
            KeyError: the process is not polled.
        """

    def regroup(self, *, process_id: int, group: int) -> None:
        """From now on its GPU time is charged to that group.

        Raises:
            KeyError: the process is not polled.
        """

    def weigh(self, *, process_id: int, sms: int, most_sms: int) -> None:
        """From now on it counts for so many SMs where several groups are busy on its GPU.

        A group counts for those of its busy processes together, `most_sms` at most. 0 SMs: it is
        not known, and intervals that it shares with others are split evenly. Any thread.

        Raises:
            KeyError: the process is not polled.
        """

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def poll(self, *, now_ns: int) -> bool:
        """One round, and a heartbeat; True if something a scheduler cares about changed."""

    def pause_ns(self) -> int:
        """How long whoever polls by hand may wait until the next round, in nanoseconds.

        The period while a process is busy or waits; from the 17th round in a row on in which none
        is ever longer, the idle period at most. Any thread.
        """

    def wait(self, *, timeout_ns: int) -> bool:
        """Block until a notable change, `wake` or the timeout; True unless it was the timeout.

        Notable: a process became busy or idle, a thread of it began or ended waiting, a step, phase
        or doorbell, fail-open began or ended.
        """

    def wake(self) -> None: ...
    def snapshots(self) -> list[Snapshot]: ...
    def changed(self) -> list[Snapshot]:
        """Only those that are new or differ from what the last call had, by process_id.

        A figure that grows by itself, or comes only along with another, is no difference.
        """
    def memory_claims(self) -> dict[int, tuple[int, int]]:
        """Bytes that each process says that it has on its GPUs, and with those it is asking for.

        The second is at no time below what the driver counts of memory that the process counts.
        By process_id; from the pages themselves, not from the last round; any thread.
        """
    def drain_records(self, *, limit: int = ..., kinds: int = ...) -> list[tuple[int, bytes]]:
        """(process_id, packed shm::Record array) since the last call, oldest first; bounded buffer.

        Records of `kinds`, a bit for each shm::RecordKind, are kept from the first call on, and for
        five seconds after each; of no kind: until there is another call. `ticks` is already
        converted to nanoseconds; 0 where the job has not said how.
        """

    def want_window(self, *, process_id: int) -> None:
        """Record what the process does during its next iteration. KeyError if it is not polled."""

    def window(self, *, process_id: int) -> Window | None:
        """The newest that is complete; None if there is none, or no such process."""

    def begin_sample(
        self, *, process_id: int, launches: int, with_window: bool = ..., timeout_ns: int
    ) -> int:
        """Ask a process for the parameters of its launches; return the sample's number.

        It ends when `launches` (1 to 65536) were read, or after `timeout_ns`, whichever comes
        first. `with_window` asks for a window, too, all of which it covers: another that is under
        way is begun anew, and the sample ends with it. A sample that nobody took is dropped.

        Raises:
            ValueError: `launches` is out of range.
            KeyError: the process is not polled.
            RuntimeError: a sample of it, or the window of one, is under way.
        """

    def take_sample(self, *, process_id: int, number: int) -> Sample | None:
        """That sample, once, when it and its window have ended; None before and after.

        Raises:
            KeyError: the process is not polled.
        """

    def take_requests(
        self, *, process_id: int, idle_ns: int, limit_ns: int
    ) -> tuple[int, list[int], int, list[int], list[int]] | None:
        """The requests that ended since the last call, from the first call or mark of one on.

        How they were told (0 bursts of work, 1 marked steps, 2 marked requests) and how long each
        took, ns, in order of their ends: the newest 1,024; the most marked ones that were under way
        at once; what the mark of each says that it is to take at most, ns, 0: nothing; and for how
        much of each a thread of the process was held before a call, ns, 0 to its duration. None:
        the process is not polled. Until the next call one that takes longer than `limit_ns` is
        notable; 0: none is.
        """

@final
class Scaling:
    """How long a record would take on other numbers of SMs."""

    @property
    def length_ns(self) -> list[int]:
        """For each number of SMs asked for, in that order."""

    @property
    def recorded_ns(self) -> int:
        """What it took, without the time that it was held back."""

    @property
    def reconstructed_ns(self) -> int:
        """The same, from its operations, before its kernels were scaled to give that."""

    @property
    def kernel_ns(self) -> int:
        """Time of its kernels and graphs, measured or predicted."""

    @property
    def gridless_ns(self) -> int:
        """Of that, of what does not say its grid: taken for as large as can be."""

    @property
    def demand_ns(self) -> float:
        """The same, each by the part of the SMs that hold its whole grid."""

    @property
    def operations(self) -> int:
        """On the GPU."""

    @property
    def untimed(self) -> int:
        """Of these, that are taken to last no time."""

    @property
    def is_crowded(self) -> bool:
        """More kernels could run at a time, on some number of SMs, than is told of (32)."""

@final
class RecordedOperations:
    """What the telemetry records of one process mean; records as Window has them.

    Raises ValueError when the length is no multiple of 64.
    """

    def __init__(self, records: bytes) -> None: ...
    @property
    def operations(self) -> list[Operation]:
        """Marks and the like are left out; threads and streams are numbers of those below."""

    def analyse(self) -> Analysis:
        """Of all of them, as one window."""

    def scaling(
        self,
        *,
        begin_ns: int,
        end_ns: int,
        sms: int,
        sm_counts: Sequence[int],
        gamma: float = 0.0,
        pause_ns: int = 0,
    ) -> Scaling:
        """How long all of them would take on other numbers of SMs than the `sms` they ran on.

        They are whole iterations that began and ended then. `gamma`, 0 to 1: how little the number
        of SMs means to their kernels. Where nothing was asked for and nothing under way for
        `pause_ns` or longer, that time does not count; 0: all of it does. `docs/dag-analysis.md`
        says how it is told.

        Raises:
            ValueError: a number of SMs is 0, or gamma is out of range.
        """

    @property
    def held(self) -> list[tuple[int, int]]:
        """When a thread was kept from submitting, by gate, window or a higher class; in ns."""

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
    def busy_ns(self) -> int:
        """Of it, in which the process was busy, as far as polls saw it."""

    @property
    def shared_ns(self) -> int:
        """And of that, in which other groups were busy on its GPU, too."""

    @property
    def records(self) -> bytes:
        """Packed shm::Record, by when their calls had effect; `ticks` are nanoseconds."""

    def launches(
        self, sample: Sample, signatures: Mapping[str, Signature] = ...
    ) -> dict[int, tuple[list[tuple[int, int, bool]], bool]]:
        """By sample number: accesses as `Dag.add` takes them, and whether they are all.

        `signatures` are those of kernels by name, where that does not say them.
        Allocations are known from their records: those from before the process was watched, or
        from before records were lost, are not. What is known and what is all says
        `Allocations.touched_by`; a launch that was given no memory may use any.
        """

@final
class Sample:
    """Which functions a process launched for a while, with which parameters."""

    @property
    def number(self) -> int: ...
    @property
    def window(self) -> Window | None:
        """The one that was asked for with it."""

    @property
    def lost(self) -> int:
        """Launches that are known to be missing."""

    @property
    def functions(self) -> list[tuple[int, str, list[tuple[int, int]], bool]]:
        """(handle, mangled name, (offset, bytes) of each parameter, whether there are more)."""

    @property
    def launches(self) -> list[tuple[int, int, int | None, list[int], bool]]:
        """(number, tid, function or None, words of the parameters, whether there are more words).

        The number is the low half of the value of the launch's telemetry record; the function is
        an index into `functions`; each parameter begins a new word.
        """

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

class OperationKind(enum.IntEnum):
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

class EdgeKind(enum.IntEnum):
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
class Signature:
    """What the parameters of a kernel are, as somebody declares it where its name does not say.

    `text` is a C parameter list, such as "const float* from, float* to, int n". Raises ValueError
    for what is none, with templates or pointers to functions in it, or longer than 4096 bytes.
    """

    def __init__(self, text: str) -> None: ...
    def check(self, kernel: str, parameters: Sequence[tuple[int, int]]) -> None:
        """Raise ValueError if it does not fit the kernel's parameters: offset and size of each."""

@final
class Kernel:
    """A kernel: mangled name, and offset and size in bytes of each of its parameters.

    `declared` stands for what the name says of them.
    """

    def __init__(
        self,
        name: str,
        parameters: Sequence[tuple[int, int]],
        *,
        declared: Signature | None = None,
    ) -> None: ...

@final
class Allocations:
    """The device memory of a process now, of which launches touch some. Of one thread.

    It holds 65,536 at once; what is added to that stays unknown.
    """

    def __init__(self) -> None: ...
    def add(self, address: int, size_bytes: int) -> None:
        """From now on it is there; what it overlaps has been freed unseen."""

    def remove(self, address: int) -> int:
        """It is gone; how large it was in bytes, 0 if it was not known."""

    def holding(self, address: int) -> tuple[int, int] | None:
        """Begin and size in bytes of the one that an address lies in; logarithmic time."""

    def touched_by(
        self, kernel: Kernel, words: Sequence[int], *, is_cut: bool
    ) -> tuple[tuple[tuple[int, int, bool], ...], bool]:
        """Accesses of a launch as `Dag.add` takes them, by address, and whether they are all.

        `words` are the values of the parameters, each from a new word on; `is_cut`: there are more.
        Every word in an allocation is a pointer to all of it, for reading only if what is declared,
        or else the mangled name, says so. They are all if each word that could be an address was
        found and leads to what holds no further ones by that. Global variables, textures and
        surfaces are not seen.
        """

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

    def edges_between(
        self, first: int, last: int, *, of_data: bool, since: int
    ) -> list[tuple[int, int, EdgeKind]]:
        """From, to and why, of the nodes `first` to before `last`; those of order, or of data.

        By the node they lead to, then by the one they come from; none from nodes before `since`.
        """

    def count_edges(self, first: int, last: int) -> dict[EdgeKind, int]:
        """How many edges of each kind lead from one of these nodes to another; none for 0."""

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

MOST_CHAINS: int  # streams and threads of a graph, at once
MOST_CONTEXTS: int  # of a graph, ever

def add_all(
    dag: Dag,
    operations: Sequence[object],
    *,
    streams: Sequence[int],
    processes: Sequence[int],
    gaps: AbstractSet[int],
) -> None:
    """Add the operations of a window (`tandem.dag.model`); as `Dag.add`, a million in a second.

    `streams` are the graph's numbers of those of the window, `processes` whose each thread is,
    `gaps` the places before which operations are missing. Threads get their numbers here, and
    memory of different processes different addresses: what has none, beyond 2**57 or in more than
    128 processes, is not resolved. Raises as `Dag.add` does, and IndexError
    for a stream or thread that the window does not have.
    """

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
    def held_ns(self) -> int:
        """The same of the host while its launches were held; not in `host_ns`."""

    @property
    def earlier_ns(self) -> int:
        """Work from before the window that the path begins behind."""

    @property
    def other_ns(self) -> int:
        """Stream memory operations, and between measured times what the graph has no reason for."""

class GapCause(enum.Enum):
    """Why the GPU ran nothing, told from the operation that ended the gap.

    HOST: it was handed over only then. SYNC: the same, after the host had waited for the GPU until
    the gap began, so that nothing could be queued. PAUSE: one of these, and longer than `pause_ns`.
    HELD: launches were held for more than half of it. FUNCTION: a host function in a stream came
    first. OTHER: it had been handed over, and the graph has no reason.
    """

    HOST = 0
    SYNC = 1
    PAUSE = 2
    HELD = 3
    FUNCTION = 4
    OTHER = 5

class OperationClass(enum.Enum):
    """What bounds a GPU operation, as far as can be said. NONE: it is no GPU operation.

    MEMORY and COMPUTE come from the buffers that a kernel was given, each byte counted once: how
    often it moves them, and what it computes, is not known (`docs/dag-analysis.md`).
    """

    COMPUTE = 0
    MEMORY = 1
    COPY = 2
    SMALL = 3
    UNKNOWN = 4
    NONE = 5

@final
class Gap:
    """A time in which the GPU ran nothing of the job."""

    @property
    def start_ns(self) -> int: ...
    @property
    def end_ns(self) -> int: ...
    @property
    def held_ns(self) -> int:
        """How much of it launches were held."""

    @property
    def next(self) -> int:
        """The node that ended it."""

    @property
    def cause(self) -> GapCause: ...

@final
class GapPlace:
    """How long the gap at one place of an iteration is. Quantiles by nearest rank."""

    @property
    def place(self) -> int:
        """The node that ends the gap, counted from the iteration's first."""

    @property
    def count(self) -> int:
        """Iterations that had such a gap there."""

    @property
    def iterations(self) -> int:
        """Of so many."""

    @property
    def p50_ns(self) -> int: ...
    @property
    def p90_ns(self) -> int: ...

@final
class LaunchBound:
    """Whether the host is too slow for the GPU.

    The verdict is so where `share` is at least 0.5 and `idle_share` at least 0.1.
    """

    @property
    def operations(self) -> int:
        """GPU operations."""

    @property
    def found_idle(self) -> int:
        """Those handed over when all that they had to wait for had ended."""

    @property
    def share(self) -> float:
        """found_idle / operations."""

    @property
    def idle_share(self) -> float:
        """Gaps by HOST and SYNC, of the time from the first start to the last end."""

    @property
    def verdict(self) -> bool: ...

@final
class Overlap:
    """How far kernels and transfers overlap, from 0 to 1; 0 where there are none.

    Source: Parravicini et al., "DAG-based Scheduling with Resource Sharing for Multi-task
    Applications in a Polyglot GPU Runtime", IPDPS 2021.
    """

    @property
    def ct(self) -> float:
        """Kernel time during which a transfer runs / kernel time."""

    @property
    def tc(self) -> float:
        """Transfer time during which a kernel runs / transfer time."""

    @property
    def cc(self) -> float:
        """Kernel time during which another kernel runs / kernel time."""

    @property
    def tot(self) -> float:
        """Time of operations during which one that began earlier runs / time of all operations."""

@final
class Wait:
    """A time that the host waited."""

    @property
    def node(self) -> int:
        """The call that waited."""

    @property
    def reason(self) -> int | None:
        """The last to end of what it waited for; None = all had ended. Of a copy: itself."""

    @property
    def waited_ns(self) -> int: ...

@final
class NextUse:
    """A use of a buffer, and the next one."""

    @property
    def node(self) -> int: ...
    @property
    def address(self) -> int:
        """First of the buffer: of all accesses of the window that share bytes, together."""

    @property
    def bytes(self) -> int: ...
    @property
    def next(self) -> int | None:
        """The node that uses it next, with `periodic` perhaps in the next iteration.

        None: there is none that is known.
        """

    @property
    def distance_nodes(self) -> int | None: ...
    @property
    def distance_ns(self) -> int | None:
        """From the end of this use to the start of the next, at least 0."""

    @property
    def is_bound(self) -> bool:
        """What is used in between is not known: it may be used sooner than said."""

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

    @property
    def width(self) -> list[tuple[int, int]]:
        """(ns, GPU operations that run from then on), ending with 0 of them."""

    @property
    def most_width(self) -> int: ...
    @property
    def mean_width(self) -> float:
        """From the first start to the last end of a GPU operation."""

    @property
    def busy_ns(self) -> int:
        """How long at least one GPU operation runs."""

    @property
    def overlap(self) -> Overlap: ...
    @property
    def classes(self) -> list[OperationClass]:
        """By node."""

    @property
    def class_shares(self) -> dict[OperationClass, float]:
        """Of GPU time, each operation's counted; all 0 if there is none."""

    @property
    def dominating_class(self) -> OperationClass:
        """That with more than half of GPU time; NONE if there is no such."""

    @property
    def next_uses(self) -> list[NextUse]:
        """Of all buffers, by node."""

    @property
    def gaps(self) -> list[Gap]:
        """In order of time."""

    @property
    def gap_places(self) -> list[GapPlace]:
        """By place; empty without `iterations`."""

    @property
    def launch_bound(self) -> LaunchBound: ...
    @property
    def waits(self) -> list[Wait]:
        """In order of the calls."""

def memory_curve(records: bytes, *, most: int) -> tuple[list[tuple[int, int]], int, int, int]:
    """What was held of the device at which progress, of one iteration's records as Window has them.

    Returns (progress_ns, held_bytes) of at most `most` steps, the length in progress, and how many
    launches there are, and how many of them have no predicted duration. No steps: no record says.

    Raises:
        ValueError: `most` is less than 2, or the length of `records` no multiple of 64.
    """

def bounds_of(
    window: Window, sample: Sample, *, sm_count: int, bandwidth_bytes_per_s: int
) -> tuple[dict[OperationClass, float], int, int]:
    """What bounds a window's work on a device, of which 0 means not known (`docs/dag-analysis.md`).

    Parts of its GPU time, together 1, or all 0 where nothing is timed; how many operations there
    were on the GPU; of how many of them the duration is not known. `sample`: of the same time.
    """

def analyse(
    dag: Dag,
    first: int,
    last: int,
    *,
    since: int | None = None,
    measured: Sequence[tuple[int, int] | None] = (),
    sm_count: int = 0,
    bandwidth_bytes_per_s: int = 0,
    small_ns: int = 5_000,
    memory_share: float = 0.6,
    compute_share: float = 0.2,
    held: Sequence[tuple[int, int]] = (),
    pause_ns: int = 1_000_000,
    least_gap_ns: int = 50_000,
    iterations: Sequence[int] = (),
    periodic: bool = False,
) -> Analysis:
    """Analyse the nodes [first, last) of a graph, for example those of an iteration.

    Times are reconstructed from node `since` on (default: the oldest that there is), so that work
    from before the window delays it as it did. `measured` may give start and end, in ns, of each
    node of the window; they win over what would be reconstructed.

    Classes need the device's `sm_count` and `bandwidth_bytes_per_s`, 0 = not known, and go by three
    limits: a kernel shorter than `small_ns` is small; one whose buffers need `memory_share` of its
    duration at that bandwidth is bound by memory, less than `compute_share` by computing.
    `held` are intervals, in ns, in which the job's launches were held; gaps longer than `pause_ns`
    are pauses of the host. `iterations` are nodes with which iterations begin: what `gap_places`
    counts from, for gaps of at least `least_gap_ns`. `periodic`: the window is an iteration, after
    which the same comes again.

    Raises:
        IndexError: there are no such nodes.
        ValueError: `measured` has not one entry for each node of the window.
    """
