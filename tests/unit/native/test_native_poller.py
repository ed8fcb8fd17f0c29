import mmap
import os
import signal
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tandem import _native

MINUTE_NS = 60_000_000_000  # only a deadline, never waited for
SLOTS, RING_HEADERS, RINGS, STATE_BYTES = 4096, 5 * 4096, 6 * 4096, 6 * 4096 + 17 * 65536
TICK = 128


class Job:
    """A process as the daemon sees it, and its state page as the shim sees it."""

    def __init__(self, process_id: int) -> None:
        self.process = _native.Process(process_id=process_id, job_id=1)
        self.state = mmap.mmap(self.process.fds[1], STATE_BYTES)

    def put(self, offset: int, value: int, kind: str = "Q") -> None:
        struct.pack_into("<" + kind, self.state, offset, value)

    def set_slot(self, *, issued: int, done: int) -> None:
        self.put(SLOTS + 28, 1, "I")
        self.put(SLOTS + 8, done)
        self.put(SLOTS, issued)

    def record(self, *, ticks: int) -> bytes:
        head = struct.unpack_from("<Q", self.state, RING_HEADERS)[0]
        packed = struct.pack("<QBBHIQQQIIQQ", ticks, 1, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8)
        place = RINGS + head % 1024 * 64
        self.state[place : place + 64] = packed
        self.put(RING_HEADERS, head + 1)
        return packed

    def tick_ns(self) -> int:
        return struct.unpack("<Q", os.pread(self.process.fds[0], 8, TICK))[0]

    def close(self) -> None:
        self.state.close()
        self.process.close()


@pytest.fixture
def job() -> Iterator[Job]:
    made = Job(7)
    yield made
    made.close()


@pytest.fixture
def poller() -> Iterator[_native.Poller]:
    made = _native.Poller(period_ns=1_000_000, idle_period_ns=2_000_000)
    yield made
    made.stop()


def test_polling_by_hand_reads_stamps_and_charges(job: Job, poller: _native.Poller) -> None:
    poller.add(job.process, group=1)
    assert not poller.poll(now_ns=1000)

    job.set_slot(issued=2, done=0)
    became_busy = poller.poll(now_ns=2000)
    poller.poll(now_ns=5000)

    (snapshot,) = poller.snapshots()
    assert became_busy
    assert (snapshot.process_id, snapshot.busy, snapshot.open_segments) == (7, True, 2)
    assert (snapshot.exclusive_ns, snapshot.shared_ns) == (3000, 0)
    assert snapshot.wait_total_ns == (0, 0, 0, 0, 0)
    assert job.tick_ns() == 5000


def test_polling_by_hand_is_rarer_while_nothing_goes_on(job: Job) -> None:
    poller = _native.Poller(period_ns=1_000_000, idle_period_ns=5_000_000)
    poller.add(job.process, group=1)

    def pauses(rounds: int) -> list[int]:
        told = []
        for number in range(rounds):
            poller.poll(now_ns=1000 + number)
            told.append(poller.pause_ns() // 1_000_000)
        return told

    assert pauses(19) == [1] * 15 + [2, 4, 5, 5]
    job.set_slot(issued=1, done=0)
    assert pauses(20) == [1] * 20


def test_two_groups_on_two_gpus_do_not_share(poller: _native.Poller) -> None:
    jobs = [Job(1), Job(2)]
    for gpu, job in enumerate(jobs):
        poller.add(job.process, group=gpu, gpu=gpu)
        job.set_slot(issued=1, done=0)

    poller.poll(now_ns=1000)
    poller.poll(now_ns=2000)

    assert [s.exclusive_ns for s in poller.snapshots()] == [1000, 1000]
    for job in jobs:
        job.close()


def test_what_two_groups_share_is_split_by_what_they_count_for(poller: _native.Poller) -> None:
    jobs = [Job(1), Job(2)]
    for group, job in enumerate(jobs):
        poller.add(job.process, group=group)
        job.set_slot(issued=1, done=0)
    poller.weigh(process_id=1, sms=4, most_sms=8)
    poller.weigh(process_id=2, sms=16, most_sms=12)

    poller.poll(now_ns=1000)
    poller.poll(now_ns=2600)

    assert [(s.shared_ns, s.even_ns) for s in poller.snapshots()] == [(400, 800), (1200, 800)]
    with pytest.raises(KeyError, match="process 3 is not polled"):
        poller.weigh(process_id=3, sms=1, most_sms=1)
    for job in jobs:
        job.close()


def test_records_come_from_the_first_request_on(job: Job, poller: _native.Poller) -> None:
    job.put(64 + 16, 1 << 32)  # a tick is a nanosecond
    poller.add(job.process, group=1)
    poller.poll(now_ns=1000)
    assert poller.drain_records() == []

    packed = job.record(ticks=1500) + job.record(ticks=1600)
    poller.poll(now_ns=2000)

    assert poller.drain_records() == [(7, packed)]
    assert poller.drain_records() == []
    assert poller.snapshots()[0].records == 2


def test_a_limit_leaves_the_rest_for_the_next_call(job: Job, poller: _native.Poller) -> None:
    poller.add(job.process, group=1)
    poller.drain_records()
    for _ in range(3):
        job.record(ticks=0)
    poller.poll(now_ns=2000)

    assert [len(packed) for _, packed in poller.drain_records(limit=2)] == [128]
    assert [len(packed) for _, packed in poller.drain_records(limit=2)] == [64]


def test_a_process_is_polled_once_and_removed_once(job: Job, poller: _native.Poller) -> None:
    poller.add(job.process, group=1)
    with pytest.raises(ValueError, match="process 7 is polled already"):
        poller.add(job.process, group=2)

    poller.remove(process_id=7)
    with pytest.raises(KeyError, match="process 7 is not polled"):
        poller.remove(process_id=7)


def test_a_process_closed_before_it_is_removed_stays_readable(poller: _native.Poller) -> None:
    job = Job(7)
    poller.add(job.process, group=1)
    job.set_slot(issued=1, done=0)
    job.close()

    poller.poll(now_ns=1000)

    assert poller.snapshots()[0].busy


def test_unused_rings_take_no_memory(job: Job, poller: _native.Poller) -> None:
    poller.add(job.process, group=1)
    poller.drain_records()
    for now_ns in range(1, 40):
        poller.poll(now_ns=now_ns)

    assert os.fstat(job.process.fds[1]).st_blocks * 512 <= RINGS


def test_the_threads_tell_a_waiting_core_of_changes(job: Job, poller: _native.Poller) -> None:
    poller.add(job.process, group=1)
    poller.start()

    job.set_slot(issued=1, done=0)
    while not poller.snapshots()[0].busy:
        assert poller.wait(timeout_ns=MINUTE_NS)

    assert job.tick_ns() > 0
    with pytest.raises(RuntimeError, match="virtual clock"):
        poller.poll(now_ns=1)


def test_wake_from_a_thread_ends_the_wait(poller: _native.Poller) -> None:
    other = threading.Thread(target=poller.wake)
    other.start()

    assert poller.wait(timeout_ns=MINUTE_NS)
    assert not poller.wait(timeout_ns=0)
    other.join()


def test_a_signal_handler_runs_during_the_wait(poller: _native.Poller) -> None:
    before = signal.signal(signal.SIGALRM, lambda *_: poller.wake())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        assert poller.wait(timeout_ns=MINUTE_NS)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_an_exception_of_a_signal_handler_ends_the_wait(poller: _native.Poller) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def wait() -> None:
        # Set here: on a busy machine the signal might otherwise come before the wait.
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        poller.wait(timeout_ns=MINUTE_NS)

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            wait()
    finally:
        signal.signal(signal.SIGALRM, before)


def test_the_native_threads_block_every_signal(poller: _native.Poller) -> None:
    poller.start()

    blocked = {}
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # another thread, which has ended
            lines = (task / "status").read_text().splitlines()
            status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
            blocked[status["Name"]] = int(status["SigBlk"], 16)

    wanted = (1 << signal.SIGTERM - 1) | (1 << signal.SIGINT - 1) | (1 << signal.SIGCHLD - 1)
    for name in ("tandem-poll", "tandem-beat"):
        assert blocked[name] & wanted == wanted


def test_stop_and_start_can_be_repeated(job: Job, poller: _native.Poller) -> None:
    poller.add(job.process, group=1)
    for _ in range(3):
        poller.start()
        poller.start()
        poller.stop()
        poller.stop()

    poller.poll(now_ns=1)


@pytest.mark.parametrize("periods", [(0, 1_000_000), (2_000_000, 1_000_000), (10**6, 10**10)])
def test_absurd_periods_are_refused(periods: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="100000 <= period_ns"):
        _native.Poller(period_ns=periods[0], idle_period_ns=periods[1])
