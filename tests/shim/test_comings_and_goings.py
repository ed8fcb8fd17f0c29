"""Daemons and peers that come and go leave no growing remains in a job that outlives them."""

import mmap
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from shim_daemon import MONOTONIC, Attached, FakeDaemon, Job, monotonic_ns
from shim_support import Preload

from tandem import _native

BERTHS = 16  # berths.h
LAUNCH, THREAD = 1, slice(12, 16)  # of a record: the value of its kind, the place of its thread
MAPS = "open('/proc/self/maps').read().count('/memfd:')"
REGISTERED = "cu.fake_count(b'cuMemHostRegister_v2')"
EVENTS = "cu.fake_count(b'cuEventCreate') - cu.fake_count(b'cuEventDestroy_v2')"
POOL = "__import__('concurrent.futures').futures.ThreadPoolExecutor(1)"


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    with closing(FakeDaemon(tmp_path)) as listening:
        yield listening


def next_daemon(daemon: FakeDaemon, attached: Attached) -> Attached:
    """Break the connection, and attach the job again."""
    attached.connection.close()
    again = daemon.attach()
    again.until_in_use()
    return again


def test_a_daemon_in_a_crash_loop_takes_no_maps_and_pins_no_pages_for_ever(
    preload: Preload, daemon: FakeDaemon
) -> None:
    with Job(preload.environment()) as job:
        attached = job.attach_to(daemon)
        left = []
        for _ in range(BERTHS + 4):
            attached.until("busy", False)  # the GPU's markers (or events) are seen
            left.append((job.do(MAPS), job.do(REGISTERED)))
            attached = next_daemon(daemon, attached)
            job.do("launch()")

        assert left[0] == (3, 1)
        assert left[BERTHS - 1 :] == [(3 * BERTHS, BERTHS)] * 5
        assert job.end() == ""


def test_a_lost_daemon_leaves_no_events(preload: Preload, daemon: FakeDaemon) -> None:
    with Job(preload.environment(FAKE_MEMOPS="0")) as job:
        job.start("[launch() for _ in range(5)]")  # by then the durations have been measured
        attached = daemon.attach()
        job.result()
        left = []
        for _ in range(11):
            attached.until("busy", False)
            left.append(job.do(EVENTS))
            attached = next_daemon(daemon, attached)
            job.do("launch()")

        # Another marker may be under way or not; one more from each daemon would be four.
        assert min(left[8:]) <= max(left[2:5]) + 1


def test_what_ends_with_its_context_is_marked_by_the_gpu_again(
    preload: Preload, daemon: FakeDaemon
) -> None:
    with Job(preload.environment()) as job:
        attached = job.attach_to(daemon)
        attached.until("busy", False)
        for _ in range(BERTHS):
            attached = next_daemon(daemon, attached)
        job.do("launch()")
        attached.until("busy", False)
        by_events = job.do(REGISTERED)

        job.do("cu.cuCtxDestroy_v2(0x1000)")
        job.do("launch()")
        attached.until("busy", False)

        assert (by_events, job.do(REGISTERED)) == (1, 2)


def test_a_thread_that_slept_through_many_daemons_takes_nobodys_ring(
    preload: Preload, daemon: FakeDaemon
) -> None:
    with Job(preload.environment()) as job:
        job.do(f"globals().update(sleeper={POOL})")
        job.start("sleeper.submit(launch).result()")
        attached = daemon.attach()
        job.result()
        for _ in range(BERTHS):
            attached = next_daemon(daemon, attached)
        attached.keep_records()

        job.do("[launch() for _ in range(3)]")
        job.do("[sleeper.submit(launch).result() for _ in range(3)]")
        job.do("[launch() for _ in range(3)]")

        threads = [r[THREAD] for r in attached.records() if r[8] == LAUNCH]
        assert sorted(map(threads.count, set(threads))) == [3, 6]


def test_a_forked_child_maps_over_nothing_of_its_own(preload: Preload, daemon: FakeDaemon) -> None:
    with Job(preload.environment()) as job:
        attached = job.attach_to(daemon)
        for _ in range(BERTHS):
            attached = next_daemon(daemon, attached)

        # The child's first mappings lie where its parent had its pages.
        fill = "[__import__('mmap').mmap(-1, 1 << 20) for _ in range(64)]"
        use = "[page.write(b'mine' * (1 << 18)) for page in pages]"
        same = "all(page[:] == b'mine' * (1 << 18) for page in pages)"
        child = f"(globals().update(pages={fill}), {use}, launch(), 0 if {same} else 1)[-1]"
        job.start(f"in_child(lambda: {child})")
        daemon.attach()

        assert job.result() == 0


def test_urgent_peers_that_come_and_go_leave_one_map(preload: Preload, daemon: FakeDaemon) -> None:
    with Job(preload.environment()) as job:
        attached = job.attach_to(daemon)
        for number in range(40):
            page = _native.Process(process_id=number, job_id=2)
            peer = Attached(attached.connection, attached.hello, page, clock=MONOTONIC)
            peer.introduce_to(attached.connection, 0)
        attached.connection.close()  # it sees the end after all of these

        with mmap.mmap(page.fds[2], mmap.PAGESIZE) as presence:
            presence[8:16] = (monotonic_ns() + 3600 * 10**9).to_bytes(8, "little")
            attached = daemon.attach(peers=[peer])
            attached.until_in_use()
            job.start("launch()")
            attached.until("waiting_threads", 1)  # it yields to the page that is there now
            presence[8:16] = bytes(8)

        assert job.result() == 0
        assert job.do(MAPS) == 2 * 3 + 1
