import fcntl
import mmap
import os
import resource
import struct
from collections.abc import Iterator

import pytest

from tandem import _native

GATE, FLAGS, WINDOW, JOB_CLASS, SEGMENT, LINGER, MASK = 64, 68, 72, 76, 80, 88, 96
TICK, STALE, LIMIT = 128, 136, 192


@pytest.fixture
def process() -> Iterator[_native.Process]:
    made = _native.Process(process_id=7, job_id=3)
    yield made
    made.close()


def word(fd: int, offset: int, kind: str = "Q") -> int:
    return struct.unpack("<" + kind, os.pread(fd, struct.calcsize(kind), offset))[0]


def test_a_receiver_can_neither_shrink_grow_nor_seal(process: _native.Process) -> None:
    for fd in process.fds:
        for size in (0, 1 << 24):
            with pytest.raises(PermissionError):
                os.ftruncate(fd, size)
    for fd in process.fds[:2]:
        with pytest.raises(PermissionError):
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)


def test_a_receiver_can_only_read_the_command_page(process: _native.Process) -> None:
    command = process.fds[0]

    with pytest.raises(PermissionError):
        mmap.mmap(command, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    with pytest.raises(PermissionError):
        os.pwrite(command, b"x", GATE)
    with mmap.mmap(command, 4096, prot=mmap.PROT_READ) as page:
        assert page[:4] == b"TDMC"


def test_reopening_a_memfd_opens_no_back_door(process: _native.Process) -> None:
    reopened = os.open(f"/proc/self/fd/{process.fds[0]}", os.O_RDWR)
    try:
        with pytest.raises(PermissionError):
            mmap.mmap(reopened, 4096)
        with pytest.raises(PermissionError):
            os.ftruncate(reopened, 0)
    finally:
        os.close(reopened)


def test_memfds_belong_to_their_owner_and_are_not_inherited(process: _native.Process) -> None:
    for fd in process.fds:
        assert os.fstat(fd).st_mode & 0o777 == 0o600
        assert not os.get_inheritable(fd)


def test_presence_is_read_only_for_peers_once_sealed(process: _native.Process) -> None:
    job_view = mmap.mmap(process.fds[2], 4096)

    fd = process.seal_presence()

    assert fd == process.fds[2]
    with pytest.raises(PermissionError):
        mmap.mmap(fd, 4096)
    with pytest.raises(PermissionError):
        os.pwrite(fd, b"x", 8)
    job_view[8:16] = struct.pack("<Q", 99)
    assert word(fd, 8) == 99
    job_view.close()


def test_a_job_that_sealed_presence_itself_is_an_os_error(process: _native.Process) -> None:
    fcntl.fcntl(process.fds[2], fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL)

    with pytest.raises(PermissionError, match="F_ADD_SEALS"):
        process.seal_presence()


def test_a_new_process_is_ungoverned(process: _native.Process) -> None:
    command = process.fds[0]

    assert word(command, GATE, "I") == 0
    assert word(command, FLAGS, "I") == 0b011
    assert word(command, WINDOW, "I") == 0
    assert (word(command, SEGMENT), word(command, LINGER)) == (100_000, 300_000)
    assert word(command, STALE) == 2_000_000_000
    assert word(command, LIMIT) == _native.NO_LIMIT
    assert (word(command, 16), word(command, 24)) == (7, 3)


def test_every_setting_reaches_the_command_page(process: _native.Process) -> None:
    command = process.fds[0]

    process.set_window(segments=2, segment_ns=50_000)
    process.set_class(job_class=1)
    process.set_linger(linger_ns=1, limit_ns=2)
    process.set_flags(honour_presence=False, telemetry=False, released=True)
    process.set_presence_mask(mask=0b101)
    process.set_memory_limit(limit_bytes=1 << 30)
    process.set_stale(stale_ns=5)
    process.stamp(tick_ns=77)

    assert (word(command, WINDOW, "I"), word(command, SEGMENT)) == (2, 50_000)
    assert word(command, JOB_CLASS, "I") == 1
    assert (word(command, LINGER), word(command, MASK)) == (1, 0b101)
    assert word(command, FLAGS, "I") == 0b100
    assert (word(command, LIMIT), word(command, STALE), word(command, TICK)) == (1 << 30, 5, 77)


def test_a_set_of_sms_is_one_word_of_the_command_page(process: _native.Process) -> None:
    sm_set = LIMIT + 16
    assert word(process.fds[0], sm_set, "I") == 0

    process.set_sms(first=3, count=1023, group_sms=8, turn=7)

    assert word(process.fds[0], sm_set, "I") == 3 | 1023 << 10 | 8 << 20
    assert word(process.fds[0], sm_set + 44, "I") == 7
    for wrong in ((0, 1, 0), (1024, 1, 8), (0, 1024, 8), (0, 1, 4096)):
        with pytest.raises(ValueError, match="no set"):
            process.set_sms(first=wrong[0], count=wrong[1], group_sms=wrong[2])


def test_the_line_for_memory_reaches_the_command_page(process: _native.Process) -> None:
    command = process.fds[0]
    memory = LIMIT

    process.set_memory_wait(wait_ns=9)
    process.set_memory_place(ticket=4, round=6, refused=True, line_ahead=False)

    assert (word(command, memory + 24), word(command, memory + 32)) == (9, 4)
    assert (word(command, memory + 20, "I"), word(command, memory + 40, "I")) == (6, 0b10)

    process.set_memory_place(ticket=0, round=0, refused=False, line_ahead=True)

    assert word(command, memory + 32) == 0
    assert (word(command, memory + 20, "I"), word(command, memory + 40, "I")) == (0, 0b01)


def test_the_gate_word_changes_only_with_the_gate(process: _native.Process) -> None:
    assert process.set_gate(hold=True) == 3
    assert process.set_gate(hold=True) == 3
    assert process.set_gate(hold=False) == 4
    assert word(process.fds[0], GATE, "I") == 4


def test_a_closed_process_says_so() -> None:
    process = _native.Process(process_id=7, job_id=3)
    fds = process.fds
    process.close()
    process.close()

    with pytest.raises(ValueError, match="process 7 is closed"):
        process.set_gate(hold=True)
    for fd in fds:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)
    assert process.process_id == 7


def test_figures_out_of_range_are_refused(process: _native.Process) -> None:
    with pytest.raises(ValueError, match="job_class is 4, more than 3"):
        process.set_class(job_class=4)
    with pytest.raises(TypeError):
        process.set_memory_limit(limit_bytes=-1)


def test_a_full_descriptor_table_is_an_os_error() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(OSError, match="memfd_create: Too many open files"):
            _native.Process(process_id=1, job_id=1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
