"""Host memory, the files that replace it, and who owns them."""

import errno
import os
import resource
import stat
from collections import deque
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace

import pytest
from open_files import open_files

from tandem import _native
from tandem.errors import UsageError
from tandemd.core.events import (
    CopyPool,
    DropFile,
    DropPool,
    MoveMemory,
    OfferFile,
    PoolCopied,
    PoolMade,
    PoolRefused,
    TakeBack,
)
from tandemd.edges.homes import Homes
from tandemd.edges.host_files import HostFiles
from tandemd.edges.host_pool import HostPools
from tandemd.host import Host

MIB = 1 << 20
SIZE = 20 * MIB  # more than one chunk


class Posted:
    """Errands for the loop, which run when the test says so."""

    def __init__(self):
        self.errands = deque()

    def __call__(self, errand):
        self.errands.append(errand)

    def run(self):
        while self.errands:
            self.errands.popleft()()


def size_of(fd):
    about = os.fstat(fd)
    return about.st_size, about.st_blocks * 512


def bytes_like(seed, count=SIZE):
    return bytes([seed, 3, 5, 7]) * (count // 4)


@contextmanager
def no_file_longer_than(count):
    """As if the disk had no more room."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class House:
    """Process 1 and the packets sent to it; everything runs on the test's thread."""

    def __init__(self, folder):
        self.posted = Posted()
        self.sent = []  # packets, with the test's own copies of their descriptors
        self.told = []
        self.host = Host(directory=folder, post=self.posted, at_once=True)
        self.homes = Homes(
            host=self.host,
            send=lambda _, packet, fds: self.sent.append((packet, [os.dup(fd) for fd in fds])),
            tell=lambda event: self.told.append(event(7)),
            node_of=lambda _: 0,
        )
        self.homes.open(1)

    def give(self, order=1, count=SIZE):
        """Return the descriptor of the memory that came with an order."""
        move = MoveMemory(process_id=1, order=order, target_bytes=0, pool_bytes=count)
        self.homes.give(move, then=lambda: None)
        return self.sent[-1][1][0]

    def copy(self, pool=1, count=SIZE):
        self.homes.perform(CopyPool(process_id=1, pool=pool, size_bytes=count))
        self.posted.run()
        return self.told[-1]

    def offer(self, pool=1):
        self.homes.perform(OfferFile(process_id=1, pool=pool, order=2, since=1))
        return self.sent[-1]

    def close(self):
        self.homes.forget(1)
        for _, fds in self.sent:
            for fd in fds:
                os.close(fd)


@pytest.fixture
def house(tmp_path):
    house = House(tmp_path)
    yield house
    house.close()


def test_a_file_has_what_was_in_memory_and_is_only_to_be_read(house):
    memory = house.give()
    os.pwrite(memory, bytes_like(9), 0)

    assert house.copy() == PoolCopied(now_ns=7, process_id=1, pool=1, why_not="")
    packet, (file,) = house.offer()

    assert packet == _native.encode_host_file(order=2, since=1, pool=1)
    os.set_blocking(file, True)
    assert Path(f"/proc/self/fd/{file}").read_bytes() == bytes_like(9)
    assert size_of(file)[1] >= SIZE  # it has no holes
    assert stat.S_IMODE(os.fstat(file).st_mode) == 0o600
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.write(file, b"x")


def test_nobody_finds_the_file_by_a_name(house, tmp_path):
    house.give()
    house.copy()

    assert not list(tmp_path.iterdir())


def test_memory_whose_file_was_taken_is_free_whoever_has_it(house):
    memory = house.give()
    os.pwrite(memory, bytes_like(9), 0)
    house.copy()
    house.offer()

    house.homes.perform(DropPool(process_id=1, pool=1))

    assert size_of(memory) == (SIZE, 0)  # the test still has it open, as a dishonest job might


def test_a_file_that_is_not_needed_any_more_takes_no_room(house):
    house.give()
    house.copy()
    _, (file,) = house.offer()

    house.homes.perform(DropFile(process_id=1, pool=1))

    assert size_of(file) == (0, 0)


def test_what_a_process_has_is_left_alone_when_its_connection_goes(house):
    memory = house.give()
    other = house.give(order=2)
    for fd in (memory, other):
        os.pwrite(fd, bytes_like(9), 0)
    house.copy()
    _, (file,) = house.offer()

    house.homes.forget(1)

    assert os.pread(other, 4, 0) == bytes_like(9, 4)
    assert Path(f"/proc/self/fd/{file}").read_bytes() == bytes_like(9)


def test_a_copy_that_nobody_wants_any_more_is_thrown_away(house):
    house.give()
    before = open_files()
    house.homes.perform(CopyPool(process_id=1, pool=1, size_bytes=SIZE))
    house.homes.perform(DropFile(process_id=1, pool=1))

    house.posted.run()

    assert not house.told
    assert open_files() == before


def test_pools_count_as_they_were_sent(house):
    house.give(order=3)
    house.give(order=8)
    house.copy(pool=8)

    packet, _ = house.offer(pool=8)

    assert packet == _native.encode_host_file(order=2, since=1, pool=2)


def test_memory_that_cannot_be_had_is_told(house):
    order = MoveMemory(process_id=1, order=5, target_bytes=0, pool_bytes=SIZE)
    gone_on = []

    with no_file_longer_than(SIZE - 1):
        house.homes.give(order, then=lambda: gone_on.append(True))

    assert house.told == [PoolRefused(now_ns=7, process_id=1, pool=5)]
    assert (gone_on, house.sent) == ([True], [])


def test_without_a_directory_there_are_no_files(tmp_path):
    house = House(None)
    house.give()

    assert house.copy().why_not == "swap_dir is no longer set"

    house.host.use(tmp_path)
    assert house.copy().why_not == ""
    house.close()


def copied(folder, memory, count, **options):
    posted, answers = Posted(), []
    files = HostFiles(folder, post=posted, at_once=True, **options)
    files.want(memory, count, answers.append)
    posted.run()
    return answers[0]


def failing(error, after):
    """Writes that fail after so many bytes."""

    def write(file, chunk, at):
        if at >= after:
            raise OSError(error, os.strerror(error))
        return os.pwrite(file, chunk[: 3 * 4096], at)  # a disk may take less than it is given

    return write


@pytest.mark.parametrize("after", [0, 9 * MIB])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_disk_that_fails_leaves_memory_as_it_is_and_no_file(tmp_path, error, after):
    memory = os.memfd_create("pool")
    os.write(memory, bytes_like(9))
    before = open_files()

    answer = copied(tmp_path, memory, SIZE, write=failing(error, after))

    assert answer == f"no file of 20 MiB in swap_dir: {os.strerror(error)}"
    assert open_files() == before
    assert os.pread(memory, SIZE, 0) == bytes_like(9)
    os.close(memory)


def test_a_disk_without_room_says_so_before_anything_is_written(tmp_path):
    memory = os.memfd_create("pool")
    os.write(memory, bytes_like(9))
    written = []

    with no_file_longer_than(SIZE - 1):
        answer = copied(tmp_path, memory, SIZE, write=lambda *chunk: written.append(chunk))

    assert answer == "no file of 20 MiB in swap_dir: File too large"
    assert not written
    os.close(memory)


def test_without_a_descriptor_for_it_there_is_no_file(tmp_path):
    assert copied(tmp_path, -1, SIZE) == f"no file for it: {os.strerror(errno.EBADF)}"


@pytest.mark.parametrize("name", ["missing", "a-file"])
def test_a_directory_that_is_none_is_refused(tmp_path, name):
    (tmp_path / "a-file").touch()

    with pytest.raises(UsageError, match=f"swap_dir: '.*{name}' is not a directory"):
        HostFiles(tmp_path / name, post=Posted(), at_once=True)


def test_a_directory_without_files_is_refused():
    with pytest.raises(UsageError, match="cannot create a file in '/proc/self'"):
        HostFiles(Path("/proc/self"), post=Posted(), at_once=True)


def test_what_a_killed_daemon_left_is_taken_away(tmp_path):
    left, other = tmp_path / "tandem-home-x", tmp_path / "other"
    left.touch()
    other.touch()

    HostFiles(tmp_path, post=Posted(), at_once=True)

    assert list(tmp_path.iterdir()) == [other]


class SlowHost:
    """Makes memory when it is told to."""

    def __init__(self):
        self.wanted = []

    def want_pool(self, count, node, taker):
        self.wanted.append(taker)

    def drop(self, fd, *, emptied):
        pass


@pytest.mark.parametrize(("at_once", "took_ns"), [(False, 250), (True, 0)])
def test_how_long_memory_took_to_make_is_told_but_on_the_virtual_clock(
    at_once, took_ns, monkeypatch
):
    clock = SimpleNamespace(monotonic_ns=iter([100, 350]).__next__, monotonic=lambda: 0.0)
    monkeypatch.setattr("tandemd.edges.host_pool.time", clock)
    errands, made = SimpleQueue(), []
    pools = HostPools(
        make=lambda count, node: os.memfd_create("made"), post=errands.put, at_once=at_once
    )

    pools.want(SIZE, None, lambda fd, ns: made.append((fd, ns)))
    if not at_once:
        errands.get(timeout=60)()

    ((fd, ns),) = made
    os.close(fd)
    assert ns == took_ns


def test_what_is_asked_of_a_pool_that_is_still_being_made_is_said_after_it():
    host, sent, told = SlowHost(), [], []
    homes = Homes(
        host=host,
        send=lambda process_id, packet, fds: sent.append((packet, fds)),
        tell=lambda event: told.append(event(9)),
        node_of=lambda process_id: None,
    )
    homes.open(1)
    homes.give(
        MoveMemory(process_id=1, order=1, target_bytes=0, pool_bytes=SIZE), then=lambda: None
    )
    homes.perform(TakeBack(process_id=1, pool=1, order=3, since=2))
    assert not sent

    host.wanted[0](77, 5)

    pool = _native.encode_host_pool(bytes=SIZE)
    back = _native.encode_host_back(order=3, since=2, pool=1)
    assert sent == [(pool, (77,)), (back, ())]
    assert told == [PoolMade(now_ns=9, process_id=1, size_bytes=SIZE, took_ns=5)]
