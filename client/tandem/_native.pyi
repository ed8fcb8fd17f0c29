"""Types of the pybind11 module: the daemon's side of shared memory, and the attach messages.

Thread-safety: a `Process` belongs to the thread that made it, except `stamp`; `Poller.wake` may be
called from any thread; everything else of `Poller` from the one that owns it. Calls that wait
release the GIL. Times are nanoseconds of the attach clock (`CLOCK_MONOTONIC`, or virtual time).
"""

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
    iterations: int  # ends of those found in its records
    iteration_ns: int  # their usual length; 0 = none is found
    iteration_launches: int
    exclusive_ns: int  # GPU time while no other group was busy, charged by the poller
    shared_ns: int  # its part of intervals in which several groups were busy: an estimate
    last_busy_ns: int

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
