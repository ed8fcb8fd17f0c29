"""The poller's report of a process's iterations: from its marks if it has any, else as found."""

import mmap
import struct
import zlib
from collections.abc import Iterable, Iterator

import pytest
from iterations.phases import embed_only, train_from_cache, update_many_at_a_time
from iterations.training import train
from recorded import load

from tandem import _native
from tandem._marks import PHASE_BEGIN, PHASE_END, STEP, fnv1a

STATE_BYTES, RING_HEADERS, RINGS, RING_RECORDS = 6 * 4096 + 17 * 65536, 5 * 4096, 6 * 4096, 1024
NS_PER_TICK, MARKED_STEPS = 64 + 16, 256
MARK = 11
KINDS = {
    "launch": (1, 0),
    "to_device": (2, 1),
    "to_host": (2, 2),
    "sync": (6, 0),
    "alloc": (4, 0),
    "free": (5, 0),
}
TICK_NS = 1000  # between records


class Job:
    """A process as the daemon sees it; a test writes the rings of its threads."""

    def __init__(self, *, detects: bool = True) -> None:
        self.process = _native.Process(process_id=7, job_id=1)
        self.poller = _native.Poller(detects=detects)
        self.poller.add(self.process, group=1)
        self._state = mmap.mmap(self.process.fds[1], STATE_BYTES)
        self._put(NS_PER_TICK, 1 << 32)
        self.now_ns = 1
        self.launch_ns = 0  # predicted; 0: unknown
        self._steps = 0
        self._unread = 0
        self._threads: dict[int, int] = {}  # thread ids of replayed records

    def submit(self, operation: tuple[str, ...], *, thread: int = 0) -> None:
        kind, *rest = operation
        number, value = KINDS[kind]
        named = zlib.crc32(rest[0].encode()) if rest else 0
        self._record(thread, number, object_=named, value=value)

    def step(self, *, thread: int = 0) -> None:
        self._steps += 1
        self._put(MARKED_STEPS, self._steps)
        self._record(thread, MARK, flags=STEP)

    def phase(self, name: str, *, begins: bool) -> None:
        kind = PHASE_BEGIN if begins else PHASE_END
        self._record(0, MARK, flags=kind, object_=fnv1a(name.encode()))

    def replay(self, record: bytes) -> None:
        """Writes a recorded record into the ring of its thread."""
        (tid,) = struct.unpack_from("<I", record, 12)
        thread = self._threads.setdefault(tid, len(self._threads))
        if record[8] == MARK and record[9] == STEP:
            self._steps += 1
            self._put(MARKED_STEPS, self._steps)
        self._write(thread, record)

    def seen(self) -> _native.Snapshot:
        self.poller.poll(now_ns=self.now_ns)
        self._unread = 0
        (snapshot,) = self.poller.snapshots()
        return snapshot

    def close(self) -> None:
        self._state.close()
        self.process.close()

    def _record(
        self, thread: int, kind: int, *, flags: int = 0, object_: int = 0, value: int = 0
    ) -> None:
        ticks = self.now_ns + TICK_NS
        duration_ns = self.launch_ns if kind == KINDS["launch"][0] else 0
        fields = (ticks, kind, flags, 0, 1, 5, object_, 0, 4, 32, duration_ns, value)
        self._write(thread, struct.pack("<QBBHIQQQIIQQ", *fields))

    def _write(self, thread: int, record: bytes) -> None:
        (self.now_ns,) = struct.unpack_from("<Q", record)
        header = RING_HEADERS + 64 * thread
        (head,) = struct.unpack_from("<Q", self._state, header)
        place = RINGS + thread * 65536 + head % RING_RECORDS * 64
        self._state[place : place + 64] = record
        self._put(header, head + 1)
        self._unread += 1
        if self._unread > RING_RECORDS // 4:
            self.seen()

    def _put(self, offset: int, value: int) -> None:
        struct.pack_into("<Q", self._state, offset, value)


@pytest.fixture
def job() -> Iterator[Job]:
    made = Job()
    yield made
    made.close()


def run(job: Job, program: Iterable[tuple[str, ...]], *, marks: bool = False) -> _native.Snapshot:
    for operation in program:
        if operation[0] == "phase":
            continue
        if operation[0] != "step":
            job.submit(operation)
        elif marks:
            job.step()
    for _ in range(3):  # complete records are read two rounds later
        snapshot = job.seen()
    return snapshot


def submit_with_backward_aside(job: Job, program: Iterable[tuple[str, ...]]) -> None:
    """A separate thread launches the backward pass, as in PyTorch."""
    thread = 0
    for operation in program:
        if operation[0] == "phase":
            thread = 1 if operation[1] == "backward" else 0
        elif operation[0] != "step":
            job.submit(operation, thread=thread if operation[0] == "launch" else 0)


def test_iterations_are_found_where_none_is_marked(job: Job) -> None:
    snapshot = run(job, train(iterations=20, layers=3))

    assert snapshot.steps == 0
    assert 18 <= snapshot.iterations <= 20
    length = 1 + 32 + 31 + 12 + 1
    assert snapshot.iteration_ns == length * TICK_NS
    assert snapshot.iteration_launches == length - 2


def test_work_is_counted_from_the_end_of_an_iteration_that_was_found(job: Job) -> None:
    job.launch_ns = 500
    snapshot = run(job, train(iterations=20, layers=3))
    since_ns = snapshot.work_ns - snapshot.step_work_ns
    # The last iteration may not have ended, and its first launches are what it was recognised by.
    launches = snapshot.iteration_launches
    assert (launches - 8) * job.launch_ns <= since_ns <= launches * job.launch_ns

    job.step()
    marked = job.seen()
    assert marked.step_work_ns == marked.work_ns


def test_a_poller_that_detects_nothing_still_counts_records() -> None:
    job = Job(detects=False)

    snapshot = run(job, train(iterations=20, layers=3))

    assert snapshot.records
    assert (snapshot.iterations, snapshot.iteration_ns) == (0, 0)
    job.close()


def test_marks_win_where_they_differ_from_what_is_found(job: Job) -> None:
    batches = 0
    for operation in train(iterations=40, layers=3):
        if operation != ("step",):
            job.submit(operation)
            continue
        batches += 1
        if batches % 2 == 0:
            job.step()
    snapshot = job.seen()

    length = 2 * (1 + 32 + 31 + 12 + 1) + 1
    assert snapshot.iterations == snapshot.steps == 20
    assert snapshot.iteration_ns == length * TICK_NS
    assert snapshot.iteration_launches == length - 5


def test_iterations_found_before_the_first_mark_stay_counted(job: Job) -> None:
    found = run(job, train(iterations=10, layers=3)).iterations
    snapshot = run(job, train(iterations=5, layers=3), marks=True)

    assert found >= 8
    assert snapshot.iterations >= found + 5


def test_the_thread_that_waits_tells_the_iterations(job: Job) -> None:
    submit_with_backward_aside(job, update_many_at_a_time(60))
    snapshot = job.seen()

    assert snapshot.iteration_launches == 136 + 18  # the backward thread has more: 185
    assert 55 <= snapshot.iterations <= 60


def test_phases_are_found(job: Job) -> None:
    snapshot = run(job, train_from_cache(12))

    forward, backward, update = snapshot.phases
    assert not snapshot.phases_marked
    assert forward == pytest.approx(1000 * 136 / 609, abs=10)
    assert backward == pytest.approx(1000 * 185 / 609, abs=10)
    assert update == pytest.approx(1000 * 288 / 609, abs=10)


def test_phases_are_found_where_another_thread_launches_the_backward_pass(job: Job) -> None:
    submit_with_backward_aside(job, train_from_cache(12))
    for _ in range(3):
        snapshot = job.seen()

    assert snapshot.phases[1] == pytest.approx(1000 * 185 / 609, abs=10)


def test_no_phases_are_claimed_of_inference(job: Job) -> None:
    snapshot = run(job, embed_only(20))

    assert snapshot.iterations >= 15
    assert snapshot.phases == (0, 0, 0)


def test_phases_that_no_longer_are_are_withdrawn(job: Job) -> None:
    assert any(run(job, train_from_cache(12)).phases)

    assert run(job, embed_only(80)).phases == (0, 0, 0)


def test_marked_phases_win(job: Job) -> None:
    for operation in train_from_cache(12):
        if operation == ("step",):
            job.phase("forward", begins=False)
            job.step()
        elif operation == ("to_device",):
            job.submit(operation)
            job.phase("forward", begins=True)
        elif operation[0] != "phase":
            job.submit(operation)
    for _ in range(3):
        snapshot = job.seen()

    assert snapshot.phases_marked
    assert snapshot.phases == (1000, 0, 0)


@pytest.mark.parametrize("name", ["loader", "vision", "language", "transformer"])
def test_recorded_iterations_are_counted_as_marked(job: Job, name: str) -> None:
    marks = 0
    for record in load(name):
        if record[8] == MARK:
            marks += record[9] == STEP
        else:
            job.replay(record)
    snapshot = job.seen()

    assert marks == 40
    assert snapshot.steps == 0
    assert 38 <= snapshot.iterations <= 40


def test_recorded_phases_are_told_as_marked() -> None:
    marked, found = Job(), Job()
    for record in load("transformer"):
        marked.replay(record)
        if record[8] != MARK:
            found.replay(record)
    for _ in range(3):
        told, by_marks = found.seen(), marked.seen()

    assert by_marks.phases_marked
    assert not told.phases_marked
    assert told.phases == pytest.approx(by_marks.phases, abs=50)
    marked.close()
    found.close()
