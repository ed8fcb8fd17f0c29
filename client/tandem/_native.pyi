"""Types of the pybind11 module: the daemon's side of shared memory, and the attach messages.

Thread-safety: only the thread that made a `Process` may use it, except for `stamp`. `Poller.wake`
may be called from any thread; unless said otherwise, only the owner of a `Poller` may call the
rest. Calls that wait release the GIL. Times are nanoseconds of the attach clock
(`CLOCK_MONOTONIC`, or virtual time).
"""

import enum
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import final

PROTOCOL_VERSION: int
LAYOUT_VERSION: int
# Bits of Hello.abilities.
ABILITY_HOST_FILE: int  # the shim accepts files in place of host pools
ABILITY_HOST_BACK: int  # the shim can give host pools back
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
    memory_percent: int  # of the device, if memory_bytes is not said; 0 = not said either
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
    mps_percent: float  # share of the SMs that its environment allows it under MPS; 0 = not said
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
    no_wait: bool  # refuse it if it would have to wait in line
    asks_again: bool  # it may be refused because the answer is not known yet
    only_asks: bool  # answer, but create no job

@final
class Mapped: ...

@final
class Shared:
    key: int

@final
class Uses:
    device_uuid: bytes

def decode(packet: bytes) -> Hello | Register | Mapped | Shared | Uses:
    """Parse one packet from a shim or from `tandem run`.

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
    """Encode the answer to REGISTER; `environment` consists of lines NAME=VALUE.

    Raises:
        ValueError: they are too long for a packet.
    """

def encode_host_pool(*, bytes: int) -> bytes:
    """Encode HOST_POOL, sent with one descriptor: a sealed memfd for the process's swapped pages.

    `bytes` of the memfd are the process's own.

    Raises:
        ValueError: `bytes` is not a positive multiple of 2 MiB.
    """

def encode_host_back(*, order: int, since: int, pool: int) -> bytes:
    """Encode HOST_BACK: give an empty pool back, if `since` is still the newest order.

    `order` is the number of this order. Pools are counted from 1, in the order in which they were
    sent on the connection.

    Raises:
        ValueError: `order` or `pool` is 0.
    """

def encode_host_file(*, order: int, since: int, pool: int) -> bytes:
    """Encode HOST_FILE: the file sent along holds what was in a pool while `since` was the newest.

    `since` is the number of an order, `order` that of this one. Pools are counted from 1, in the
    order in which they were sent on the connection.

    Raises:
        ValueError: `order` or `pool` is 0.
    """

def encode_swap() -> bytes:
    """Encode SWAP: read the target that Process.set_resident_target has set."""

def encode_presence(*, index: int, job_class: int, gone: bool = ...) -> bytes: ...

@final
class Snapshot:
    """A copied and bounds-checked look at a process; all figures are the job's own claims."""

    process_id: int
    busy: bool  # some live slot has work the GPU has not finished
    live_slots: int
    open_segments: int
    device_bytes: int
    peak_bytes: int
    alloc_count: int
    refused_count: int
    refused_by: tuple[int, int, int]  # by the quota, the device, the line
    memory_ticket: int  # of the waiting request for memory; 0 = none
    memory_wanted_bytes: int
    memory_round: int  # round of its last attempt, which failed; 0 = it has not tried
    memory_of_quota: bool  # the limit is in its way, not the device
    memory_alone: bool  # all threads of the process that use the device wait for memory
    swappable_bytes: int  # part of device_bytes; swapped_bytes of these are on the host
    swapped_bytes: int
    swap_done: int  # the newest order that has ended
    swap_outcome: int  # how it ended: SwapOutcome
    # Copied to the host so far, and the time the copies took; waits between copies do not count.
    swap_out_bytes: int
    swap_out_ns: int
    swap_in_bytes: int  # and back
    swap_in_ns: int
    filed_bytes: int  # part of swapped_bytes that is in files
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
    iteration_peak_bytes: int  # by the job's marks: most held since the first mark,
    iteration_end_bytes: int  # and most held at a mark
    stopped: int  # after how many steps a mark limit last stopped it; 0 = never
    stopped_phases: int  # the same for phases begun
    begun_phases: int
    # First group, number of groups and SMs per group of its set: no stream that moves with the
    # process has work outside.
    in_set: tuple[int, int, int] | None
    in_turn: int  # `turn` of the `set_sms` since which that holds; 0 = not known
    following_streams: int
    staying_streams: tuple[int, int, int, int, int, int]  # by StayReason
    runs_graphs: bool  # since it attached; graphs do not move to the set
    set_switches: int
    linger_ns: int
    ungated: bool
    capturing: int
    helper_tick_ns: int
    presence_busy_until_ns: int
    records: int
    dropped_records: int
    iterations: int  # ends: marked ones, or those found in its records before the first mark
    iteration_ns: int  # their usual length; 0 = not known
    iteration_launches: int
    # Latency class: how much longer half of its gaps, and nine in ten, last once it no longer
    # counts as busy; 0 = not known.
    gap_p50_ns: int
    gap_p90_ns: int
    iteration_bytes: int  # device memory when the newest iteration ended, marked or found
    marks_requests: bool  # it marks its requests, or did: only marked ones count
    work_ns: int  # predicted GPU time of all submissions
    step_work_ns: int  # work_ns at the end of the newest iteration, marked or found
    timed_count: int  # submissions whose GPU time is known
    phases: tuple[int, int, int]  # forward, backward, update: thousandths; all 0 = not known
    phases_marked: bool  # by the job itself
    exclusive_ns: int  # GPU time while no other group was busy, charged by the poller
    shared_ns: int  # its share of intervals in which several groups were busy: an estimate
    even_ns: int  # the same, if these were split evenly among the groups

def split_phases(records: bytes) -> str:
    """Return the phase of each launch in the records of one iteration: F, B, U, or "-" for none.

    Marked phases take precedence. Empty: not known.

    Raises:
        ValueError: the length is not a multiple of 64.
    """

@final
class IterationFinder:
    """Finds the iterations in one thread's telemetry records."""

    def take(self, records: bytes) -> list[int]:
        """Take records of 64 bytes, oldest first; return the ticks at which iterations ended.

        Raises:
            ValueError: the length is not a multiple of 64.
        """

    def gap(self) -> None:
        """Note that records were lost here."""

    @property
    def found(self) -> bool: ...
    @property
    def ends(self) -> int: ...
    @property
    def duration(self) -> int:
        """Length of the usual iteration in ticks; 0 = not known."""

    @property
    def launches(self) -> int:
        """Launches in the usual iteration; 0 = not known."""

@final
class Process:
    """The three memfds of one attached process."""

    def __init__(self, *, process_id: int, job_id: int) -> None:
        """Create, initialise and seal the memfds. Raises OSError if the kernel refuses."""

    @property
    def process_id(self) -> int: ...
    @property
    def fds(self) -> tuple[int, int, int]:
        """Command, state and presence: to send with SCM_RIGHTS, still owned by this object."""

    def seal_presence(self) -> int:
        """Forbid further writable maps, after MAPPED; return the presence fd for peers."""

    def set_gate(self, *, hold: bool) -> int:
        """Open or close the gate, waking waiters; return the new gate word. No-op if unchanged."""

    def set_pause(self, *, number: int) -> None:
        """Announce the pause with that number to programs that listen; 0 = there is none."""
    def set_mark_limit(self, *, phases: bool, number: int) -> None:
        """Stop the process at the `number`-th end of a step, or begin of a phase; 0 = never."""

    def set_window(self, *, segments: int, segment_ns: int) -> None: ...
    def set_class(self, *, job_class: int) -> None: ...
    def set_linger(self, *, linger_ns: int, limit_ns: int) -> None: ...
    def set_flags(
        self, *, honour_presence: bool, telemetry: bool, released: bool = ...
    ) -> None: ...
    def set_presence_mask(self, *, mask: int) -> None: ...
    def set_memory_limit(self, *, limit_bytes: int) -> None: ...
    def set_memory_lease(self, *, lease_bytes: int) -> None:
        """Set what it may hold for now; the limit stays. 0 and 2**64 - 1: as much as the limit."""

    def set_memory_wait(self, *, wait_ns: int) -> None: ...
    def set_memory_place(self, *, ticket: int, round: int, refused: bool, line_ahead: bool) -> None:
        """Say which waiting request may try, or is refused; a new round lets it try again."""
    def set_resident_target(self, *, bytes: int, order: int) -> None:
        """Set how much of the swappable memory may be on the device; 2**64 - 1 = all of it.

        Snapshot.swap_done has the value `order`, 1 to 2**32 - 1, once the order has ended. The
        process reads the target when it receives `encode_swap()`.
        """

    def set_lane(self, *, holds: bool) -> None: ...
    def set_sms(self, *, first: int, count: int, group_sms: int, turn: int = 0) -> None:
        """Say which groups of SMs to use; a `count` of 0 stands for the whole device.

        Raises:
            ValueError: not a valid set: `group_sms` is 0 or above 4095, or `first` or `count` is
                above 1023.
        """

    def set_stale(self, *, stale_ns: int) -> None: ...
    def stamp(self, *, tick_ns: int) -> None: ...
    def close(self) -> None: ...

@final
class Poller:
    """Copies state pages, drains telemetry rings, charges GPU time, stamps the heartbeat.

    After `start`, two native threads do that on CLOCK_MONOTONIC: the poll thread every `period_ns`
    (slowing to `idle_period_ns` while no process is busy or waiting), and the heartbeat thread
    every 100 ms while the owner is inside `wait` or left it less than a second ago, so that a hung
    core stops the heartbeat. Without `start` (virtual clock) the owner calls `poll`.

    Without `detects`, telemetry is not analysed: no iterations, phases, gaps or windows.
    """

    def __init__(
        self, *, period_ns: int = ..., idle_period_ns: int = ..., detects: bool = ...
    ) -> None: ...
    def add(self, process: Process, *, group: int, gpu: int = ...) -> None: ...
    def remove(self, *, process_id: int) -> Snapshot:
        """Stop polling the process; return a last look at it, without its telemetry.

        Raises:
            KeyError: the process is not polled.
        """

    def regroup(self, *, process_id: int, group: int) -> None:
        """Charge its GPU time to that group from now on.

        Raises:
            KeyError: the process is not polled.
        """

    def weigh(self, *, process_id: int, sms: int, most_sms: int) -> None:
        """Set how many SMs the process counts for when several groups are busy on its GPU.

        A group counts for the sum over its busy processes, at most `most_sms`. 0 SMs: not known,
        and intervals that it shares with others are split evenly. Any thread.

        Raises:
            KeyError: the process is not polled.
        """

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def poll(self, *, now_ns: int) -> bool:
        """Run one round and stamp the heartbeat; True if something the scheduler needs changed."""

    def pause_ns(self) -> int:
        """Return how long a caller of `poll` may wait until the next round, in nanoseconds.

        This is the period while a process is busy or waits. From the 17th consecutive round
        without such a process on, it grows, up to the idle period. Any thread.
        """

    def wait(self, *, timeout_ns: int) -> bool:
        """Block until a notable change, `wake` or the timeout; False only on timeout.

        Notable: a process became busy or idle, one of its threads began or ended waiting, a step,
        phase or doorbell, fail-open began or ended.
        """

    def wake(self) -> None: ...
    def snapshots(self) -> list[Snapshot]: ...
    def changed(self) -> list[Snapshot]:
        """Return the snapshots that are new or differ from the last call's, by process_id.

        Figures that grow by themselves, or change only together with others, are ignored.
        """
    def memory_claims(self) -> dict[int, tuple[int, int]]:
        """Return the bytes each process says it has on its GPUs, without and with pending requests.

        The second is never below what the driver counts of the memory that the process counts.
        By process_id; read from the pages themselves, not from the last round; any thread.
        """
    def drain_records(self, *, limit: int = ..., kinds: int = ...) -> list[tuple[int, bytes]]:
        """Return (process_id, packed shm::Record array) since the last call, oldest first.

        The buffer is bounded. Records of `kinds`, one bit for each shm::RecordKind, are kept from
        the first call on, and for five seconds after each call; with no kinds, none are kept until
        the next call. `ticks` are already converted to nanoseconds; 0 if the job has not said how.
        """

    def want_window(self, *, process_id: int) -> None:
        """Record what the process does during its next iteration. KeyError if it is not polled."""

    def window(self, *, process_id: int) -> Window | None:
        """Return the newest complete window; None if there is none, or no such process."""

    def begin_sample(
        self, *, process_id: int, launches: int, with_window: bool = ..., timeout_ns: int
    ) -> int:
        """Ask a process for the parameters of its launches; return the sample's number.

        The sample ends when `launches` (1 to 65536) were read, or after `timeout_ns`, whichever
        comes first. `with_window` also requests a window, which the sample covers completely: a
        window under way starts over, and the sample ends with the window. A sample that nobody
        took is dropped.

        Raises:
            ValueError: `launches` is out of range.
            KeyError: the process is not polled.
            RuntimeError: a sample of it, or the window of one, is under way.
        """

    def take_sample(self, *, process_id: int, number: int) -> Sample | None:
        """Return that sample, once, when it and its window have ended; None before and after.

        Raises:
            KeyError: the process is not polled.
        """

    def take_requests(
        self, *, process_id: int, idle_ns: int, limit_ns: int
    ) -> tuple[int, list[int], int, list[int], list[int]] | None:
        """Return the requests that ended since the last call.

        Requests are observed from the first call, or the first marked request, on. The tuple holds:
        how they were recognised (0 bursts of work, 1 marked steps, 2 marked requests); the duration
        of each in ns, in order of their ends, the newest 1,024; the most marked requests that were
        under way at once; the objective that the mark of each sets, ns, 0 = none; and for how much
        of each a thread of the process was held before a call, ns, 0 to its duration. None: the
        process is not polled. Until the next call, a request that takes longer than `limit_ns` is
        notable; 0: none is.
        """

@final
class Scaling:
    """How long a recording would take on other numbers of SMs."""

    @property
    def length_ns(self) -> list[int]:
        """Predicted length for each number of SMs asked for, in that order."""

    @property
    def recorded_ns(self) -> int:
        """Its own length, without pauses and without times when it was held with an idle GPU."""

    @property
    def reconstructed_ns(self) -> int:
        """The same, rebuilt from its operations, before kernels were scaled to match it."""

    @property
    def kernel_ns(self) -> int:
        """Time of its kernels and graphs, measured or predicted."""

    @property
    def gridless_ns(self) -> int:
        """Part of kernel_ns whose grid is unknown, and assumed to fill all SMs."""

    @property
    def demand_ns(self) -> float:
        """kernel_ns with each kernel weighted by the share of SMs that hold its whole grid."""

    @property
    def operations(self) -> int:
        """Operations on the GPU."""

    @property
    def untimed(self) -> int:
        """Those assumed to last 0 ns."""

    @property
    def is_crowded(self) -> bool:
        """True if more kernels could run at once, on some number of SMs, than are modelled (32)."""

@final
class RecordedOperations:
    """The operations in the telemetry records of one process; records as in Window.

    Raises:
        ValueError: the length is not a multiple of 64.
    """

    def __init__(self, records: bytes) -> None: ...
    @property
    def operations(self) -> list[Operation]:
        """All but marks and the like; `threads` and `streams` resolve the numbers in them."""

    def analyse(self) -> Analysis:
        """Analyse all of them, as one window."""

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
        """Predict how long all of them would take on other numbers of SMs than `sms`.

        They must be whole iterations, between `begin_ns` and `end_ns`, that ran on `sms` SMs.
        `gamma`, 0 to 1: how little the number of SMs matters to their kernels. Times without
        requests and GPU work of at least `pause_ns` do not count; 0: they all do.
        `docs/dag-analysis.md` describes the method.

        Raises:
            ValueError: a number of SMs is 0, or gamma is out of range.
        """

    @property
    def held(self) -> list[tuple[int, int]]:
        """Times when a thread was kept from submitting by gate, window or a higher class; in ns."""

    @property
    def places(self) -> list[int]:
        """For each operation, the index of its record."""

    @property
    def streams(self) -> dict[int, tuple[int, int, int, StreamKind]]:
        """By number: handle, context, thread of a per-thread default stream (handle 2), kind."""

    @property
    def threads(self) -> dict[int, int]:
        """Thread ids by number."""

@final
class Window:
    """What a process did, from the end of one iteration to the end of another.

    If no iteration ends within five seconds: whatever it did in that time. Times are nanoseconds of
    the attach clock.
    """

    @property
    def begin_ns(self) -> int: ...
    @property
    def end_ns(self) -> int: ...
    @property
    def first_iteration(self) -> int:
        """Number of iterations that had ended before."""

    @property
    def iterations(self) -> int:
        """Number of whole iterations in it; 0 = none is known."""

    @property
    def lost(self) -> int:
        """Records that were overwritten before they were read."""

    @property
    def is_cut(self) -> bool:
        """True if it extends beyond the last record."""

    @property
    def busy_ns(self) -> int:
        """Time in which the process was busy, as far as polls saw it."""

    @property
    def shared_ns(self) -> int:
        """Part of busy_ns in which other groups were busy on its GPU, too."""

    @property
    def records(self) -> bytes:
        """Packed shm::Record, ordered by when their calls took effect; `ticks` are nanoseconds."""

    def launches(
        self, sample: Sample, signatures: Mapping[str, Signature] = ...
    ) -> dict[int, tuple[list[tuple[int, int, bool]], bool]]:
        """Return, by sample number, accesses as `Dag.add` takes them, and whether they are all.

        `signatures`, by kernel name, are for kernels whose names do not contain them. Allocations
        are known from their records; those made before the process was watched, or before records
        were lost, are unknown. `Allocations.touched_by` says which accesses are known and when they
        are all; a launch with no known memory may use any.
        """

@final
class Sample:
    """The functions that a process launched for a while, and their parameters."""

    @property
    def number(self) -> int: ...
    @property
    def window(self) -> Window | None:
        """The window that was requested with it."""

    @property
    def lost(self) -> int:
        """Launches that are known to be missing."""

    @property
    def functions(self) -> list[tuple[int, str, list[tuple[int, int]], bool]]:
        """(handle, mangled name, (offset, bytes) of each parameter, whether there are more)."""

    @property
    def launches(self) -> list[tuple[int, int, int | None, list[int], bool]]:
        """(number, tid, function or None, words of the parameters, whether there are more words).

        The number is the low half of `value` in the launch's telemetry record; the function is an
        index into `functions`; each parameter starts at a new word.
        """

TRACE_CALLS: str
CALL_COVERAGE: str  # JSON; see tandem._coverage

@final
class Tracer:
    """The memory to which traced processes write their calls. Used by one thread."""

    def __init__(self, *, device_times: bool, wait_ms: int, key: int) -> None:
        """Create the memory; a traced thread waits `wait_ms` for room before it counts a loss.

        Raises:
            OSError: a system call failed; the text says which.
        """

    @property
    def fd(self) -> int:
        """Descriptor that traced processes open as /proc/PID/fd/N; still owned by this object."""

    @property
    def lost(self) -> int:
        """Calls that were not recorded, so far."""

    @property
    def threads(self) -> int:
        """Traced threads not yet known to have ended."""

    def drain(self, *, look_for_dead: bool) -> bytes:
        """Return the records written since the last call: chunks, each preceded by a kChunk record.

        With `look_for_dead` it also asks the kernel which threads were killed, and frees their
        memory.
        """

class OperationKind(enum.IntEnum):
    """The kind of operation that a node of a Dag stands for."""

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

    OVERLAP: it begins after the other has begun and ends after the other has ended. All others: it
    begins after the other, and everything before that in its stream or thread, has ended.
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
    """How a stream synchronizes with the legacy default stream of its context."""

    BLOCKING = 0
    NON_BLOCKING = 1
    LEGACY = 2

@final
class Operation:
    """One operation of a job. Times are ns of one clock; 0 = not known.

    `object` is a function, a graph, an event, or the address written or allocated. Flags: 1 the
    host waits for it, 2 its duration is predicted, 4 it may touch more memory than is known,
    8 it may wait for more than is known, 16 it may begin before the preceding kernel ends.
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
    """Declared parameters of a kernel whose name does not tell them.

    `text` is a C parameter list, such as "const float* from, float* to, int n".

    Raises:
        ValueError: `text` is not one, contains templates or pointers to functions, or is longer
            than 4096 bytes.
    """

    def __init__(self, text: str) -> None: ...
    def check(self, kernel: str, parameters: Sequence[tuple[int, int]]) -> None:
        """Raise ValueError if it does not fit the kernel's parameters: offset and size of each."""

@final
class Kernel:
    """A kernel: mangled name, and offset and size in bytes of each of its parameters.

    `declared` takes the place of what the name says about the parameters.
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
    """The current device allocations of a process. Used by one thread.

    Holds at most 65,536 at once; further ones stay unknown.
    """

    def __init__(self) -> None: ...
    def add(self, address: int, size_bytes: int) -> None:
        """Add an allocation; whatever it overlaps must have been freed unseen, and is forgotten."""

    def remove(self, address: int) -> int:
        """Remove an allocation; return its size in bytes, 0 if it was not known."""

    def holding(self, address: int) -> tuple[int, int] | None:
        """Return begin and size in bytes of the allocation that contains it; logarithmic time."""

    def touched_by(
        self, kernel: Kernel, words: Sequence[int], *, is_cut: bool
    ) -> tuple[tuple[tuple[int, int, bool], ...], bool]:
        """Return a launch's accesses as `Dag.add` takes them, by address, and whether they are all.

        `words` are the values of the parameters, each starting at a new word; `is_cut`: there are
        more. Every word that falls into an allocation counts as a pointer to all of it, read-only
        if the declaration, or else the mangled name, says so. They are all if every word that could
        be an address was found, and if by declaration or name the data pointed to contains no
        further pointers. Global variables, textures and surfaces are not seen.
        """

@final
class Dag:
    """The dependency graph of operations, added in the order of their calls. Used by one thread.

    `most_nodes`, at most 2**30, limits how many nodes it holds at once: beyond that, `add` raises
    ValueError until some are retired. Streams and threads together are limited to 4096 at once,
    contexts to 65,536 in total.

    Raises:
        ValueError: a context, stream or thread that this graph did not number, or too many of them.
        IndexError: there is no such node.
    """

    def __init__(self, *, most_nodes: int = ...) -> None: ...
    def add_context(self) -> int: ...
    def add_stream(self, context: int, kind: StreamKind) -> int: ...
    def add_thread(self, context: int) -> int:
        """Number a host thread whose context-wide waits are for `context`."""

    def use_context(self, thread: int, context: int) -> None: ...
    def end_stream(self, stream: int) -> None:
        """End a stream: it gets no further operations.

        Its number is reused once everything in it is retired. The legacy stream of a context does
        not end.
        """

    def end_thread(self, thread: int) -> None:
        """End a thread, like `end_stream`."""

    def end_event(self, event: int) -> None:
        """Forget what the event stands for: it is destroyed, and another may get its number."""

    def add(
        self, operation: Operation, accesses: Sequence[tuple[int, int, bool]] | None = None
    ) -> int:
        """Add the next operation; return its node, counted from 0.

        `accesses` are (first address, bytes, only read) of the memory that it uses; None = not
        known, except for memsets, allocations and frees, which state it themselves. An operation
        that uses unknown memory gets flag 4.
        """

    def lose(self) -> None:
        """Note that operations are missing here."""

    def retire(self, before: int) -> None:
        """Forget the nodes before that one."""

    def node(self, id: int) -> Operation: ...
    def edges(self, id: int) -> list[tuple[int, EdgeKind]]:
        """Return where order edges to a node come from; those from forgotten nodes are left out."""

    def data_edges(self, id: int) -> list[tuple[int, EdgeKind]]:
        """Return the same for data edges: why an order is needed, not that it is guaranteed."""

    def edges_between(
        self, first: int, last: int, *, of_data: bool, since: int
    ) -> list[tuple[int, int, EdgeKind]]:
        """Return (from, to, kind) of the order edges, or data edges, to nodes in [first, last).

        Sorted by the node they lead to, then by the one they come from; none from nodes before
        `since`.
        """

    def count_edges(self, first: int, last: int) -> dict[EdgeKind, int]:
        """Count, by kind, the edges from one of these nodes to another; kinds with 0 are absent."""

    def accesses(self, id: int) -> list[tuple[int, int, bool]]:
        """Return the memory that a node uses, as far as known."""

    def before(self, first: int, second: int) -> bool:
        """Tell whether `first` is sure to have ended when `second` begins."""

    def may_overlap(self, first: int, second: int) -> bool:
        """Tell whether they may use the same bytes, one of them writing."""

    def independent(self, first: int, second: int) -> bool:
        """Tell whether no order between them is kept, and none is needed; False claims nothing."""

    @property
    def begin(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def bytes(self) -> int: ...

MOST_CHAINS: int  # streams and threads of a graph, at once
MOST_CONTEXTS: int  # of a graph, in total

def add_all(
    dag: Dag,
    operations: Sequence[object],
    *,
    streams: Sequence[int],
    processes: Sequence[int],
    gaps: AbstractSet[int],
) -> None:
    """Add the operations of a window (`tandem.dag.model`), like `Dag.add`; a million per second.

    `streams` are the graph's numbers for the window's streams, `processes` the process of each
    thread, `gaps` the places before which operations are missing. This function numbers the
    threads, and gives memory of different processes different addresses. Memory that gets none,
    beyond 2**57 or with more than 128 processes, is not resolved. Raises as `Dag.add` does.

    Raises:
        IndexError: the window does not have that stream or thread.
    """

@final
class AnalysisUnknown:
    """What an analysis could not know of its window: counts of nodes."""

    @property
    def durations(self) -> int:
        """GPU operations without a duration, assumed to last 0 ns."""

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
    """The parts of the critical path, which add up to its length."""

    @property
    def gpu_ns(self) -> int:
        """GPU operations."""

    @property
    def host_ns(self) -> int:
        """The host, from its waits to its next submissions, and host functions."""

    @property
    def held_ns(self) -> int:
        """The same while its launches were held; not in `host_ns`."""

    @property
    def earlier_ns(self) -> int:
        """Work from before the window, behind which the path begins."""

    @property
    def other_ns(self) -> int:
        """Stream memory operations, and gaps between measured times with no reason in the graph."""

class GapCause(enum.Enum):
    """Why the GPU ran nothing, judged by the operation that ended the gap.

    HOST: it was submitted only then. SYNC: the same, after the host had waited for the GPU until
    the gap began or longer, so that nothing could be queued. PAUSE: one of these, and longer than
    `pause_ns`. HELD: launches were held for more than half of the gap. FUNCTION: it waited for a
    host function in a stream. OTHER: it had been submitted, and the graph has no reason.
    """

    HOST = 0
    SYNC = 1
    PAUSE = 2
    HELD = 3
    FUNCTION = 4
    OTHER = 5

class OperationClass(enum.Enum):
    """What bounds a GPU operation, as far as can be said. NONE: it is no GPU operation.

    MEMORY and COMPUTE are judged by the buffers passed to a kernel, each byte counted once: how
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
        """The part of it in which launches were held."""

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
        """All iterations examined."""

    @property
    def p50_ns(self) -> int: ...
    @property
    def p90_ns(self) -> int: ...

@final
class LaunchBound:
    """Whether the host is too slow for the GPU.

    The verdict is True if `share` is at least 0.5 and `idle_share` at least 0.1.
    """

    @property
    def operations(self) -> int:
        """GPU operations."""

    @property
    def found_idle(self) -> int:
        """Those submitted when everything they had to wait for had ended."""

    @property
    def share(self) -> float:
        """found_idle / operations."""

    @property
    def idle_share(self) -> float:
        """Gaps caused by HOST and SYNC / time from the first start to the last end."""

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
    """A time in which the host waited."""

    @property
    def node(self) -> int:
        """The call that waited."""

    @property
    def reason(self) -> int | None:
        """What ended last of what it waited for; None = all had ended. For a copy: the copy."""

    @property
    def waited_ns(self) -> int: ...

@final
class NextUse:
    """A use of a buffer, and the next use of it.

    A buffer is the range covered by all accesses of the window that share bytes.
    """

    @property
    def node(self) -> int: ...
    @property
    def address(self) -> int:
        """First address of the buffer."""

    @property
    def bytes(self) -> int: ...
    @property
    def next(self) -> int | None:
        """The node that uses it next, with `periodic` perhaps in the next iteration.

        None: no next use is known.
        """

    @property
    def distance_nodes(self) -> int | None: ...
    @property
    def distance_ns(self) -> int | None:
        """From the end of this use to the start of the next, at least 0."""

    @property
    def is_bound(self) -> bool:
        """True if what is used in between is not known: the next use may come sooner."""

@final
class Analysis:
    """The results of `analyse`. Lists "by node" have an entry for each of the nodes [first, last).

    Times are ns of the clock of the submissions. Immutable.
    """

    @property
    def first(self) -> int: ...
    @property
    def last(self) -> int: ...
    @property
    def unknown(self) -> AnalysisUnknown: ...
    @property
    def starts_ns(self) -> list[int]:
        """By node: when it began, reconstructed unless measured. Waits of the host: their call."""

    @property
    def ends_ns(self) -> list[int]:
        """By node: when it ended. Waits of the host: when what they waited for had ended."""

    @property
    def critical_path(self) -> list[int]:
        """Nodes that determine the window's length, in order, submissions included."""

    @property
    def critical_ns(self) -> int:
        """From the window's first start to its last end."""

    @property
    def critical_parts(self) -> CriticalParts: ...
    @property
    def gpu_critical_path(self) -> list[int]:
        """The longest chain of operations that must run one after the other, in order."""

    @property
    def gpu_critical_ns(self) -> int:
        """Sum of its GPU operations' durations: a lower bound even for an infinitely fast host."""

    @property
    def data_critical_path(self) -> list[int] | None:
        """The longest chain by buffers alone; None if some accesses of the window are not known."""

    @property
    def data_critical_ns(self) -> int | None:
        """Its length: a lower bound if operations waited only for the data they read and write."""

    @property
    def slack_ns(self) -> list[int]:
        """By node: how much later it could begin without lengthening the window."""

    @property
    def width(self) -> list[tuple[int, int]]:
        """(ns, number of GPU operations that run from then on); the last number is 0."""

    @property
    def most_width(self) -> int: ...
    @property
    def mean_width(self) -> float:
        """Average from the first start to the last end of a GPU operation."""

    @property
    def busy_ns(self) -> int:
        """Time in which at least one GPU operation runs."""

    @property
    def overlap(self) -> Overlap: ...
    @property
    def classes(self) -> list[OperationClass]:
        """By node."""

    @property
    def class_shares(self) -> dict[OperationClass, float]:
        """Shares of the summed duration of all GPU operations; all 0 if there are none."""

    @property
    def dominating_class(self) -> OperationClass:
        """The class with more than half of the GPU time; NONE if there is none."""

    @property
    def next_uses(self) -> list[NextUse]:
        """Those of all buffers, by node."""

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
    """Return the device memory held as an iteration progresses, from its records as in Window.

    Progress is the predicted GPU time of the launches submitted so far. Returns (progress_ns,
    held_bytes) of at most `most` steps, the progress at the end, the number of launches, and how
    many of them have no predicted duration. No steps: no record says what was held.

    Raises:
        ValueError: `most` is less than 2, or the length of `records` is not a multiple of 64.
    """

def bounds_of(
    window: Window, sample: Sample, *, sm_count: int, bandwidth_bytes_per_s: int
) -> tuple[dict[OperationClass, float], int, int]:
    """Return what bounds a window's work on a device (`docs/dag-analysis.md`).

    `sample` must cover the same time; `sm_count` and `bandwidth_bytes_per_s` may be 0 = not known.
    Returns the shares of GPU time by class, which sum to 1, or are all 0 if nothing is timed; the
    number of GPU operations; and how many of those have no known duration.
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

    Times are reconstructed from node `since` on (default: the oldest in the graph), so that work
    from before the window delays it as it did. `measured` may give the start and end, in ns, of
    each node of the window; they take precedence over reconstructed times.

    Classes need the device's `sm_count` and `bandwidth_bytes_per_s`, 0 = not known, and three
    limits: a kernel shorter than `small_ns` is small; one whose buffers need at least
    `memory_share` of its duration at that bandwidth is bound by memory, less than `compute_share`
    by compute. `held` are intervals, in ns, in which the job's launches were held; gaps longer than
    `pause_ns` are pauses of the host. `iterations` are the first nodes of iterations: from them
    `gap_places` counts, for gaps of at least `least_gap_ns`. `periodic`: the window is an iteration
    that will be repeated.

    Raises:
        IndexError: there are no such nodes.
        ValueError: `measured` does not have one entry for each node of the window.
    """
