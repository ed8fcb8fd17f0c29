"""Host memory is complete when a job gets it, near its GPU, and within the machine's means."""

import ctypes
import fcntl
import mmap
import os
import platform
import stat

import pytest

from tandemd.edges import host_memory
from tandemd.edges.gpus import numa_node_of
from tandemd.edges.host_memory import make_memory

MIB = 1 << 20
SOME = 12 * 4096  # not a whole huge page, so none reserved for others is used
PREFERRED = 1


def mempolicy():
    """Return this thread's memory policy: get_mempolicy(2)."""
    mode = ctypes.c_int(-1)
    number = {"x86_64": 239, "aarch64": 236}[platform.machine()]
    ctypes.CDLL(None).syscall(number, ctypes.byref(mode), None, 0, None, 0)
    return mode.value


class Meminfo:
    """Stands for /proc/meminfo, which is read while memory is being made."""

    def __init__(self, total, available):
        self.text = f"MemTotal: {total >> 10} kB\nMemAvailable: {available >> 10} kB\n"
        self.policies = []

    def read_text(self):
        self.policies.append(mempolicy())
        return self.text


PLENTY = {"total": 64 * MIB, "available": 60 * MIB}


@pytest.mark.parametrize("asked", ["always advise [never]", "always [advise] never"])
@pytest.mark.parametrize("count", [SOME, 4 * MIB, 36 * MIB])
def test_all_of_it_is_there_and_can_neither_shrink_nor_grow(count, asked, tmp_path, monkeypatch):
    enabled = tmp_path / "shmem_enabled"
    enabled.write_text(asked)
    monkeypatch.setattr(host_memory, "_SHMEM_ENABLED", enabled)

    fd = make_memory(count, node=None)

    about = os.fstat(fd)
    assert (about.st_size, stat.S_IMODE(about.st_mode)) == (count, 0o600)
    assert about.st_blocks * 512 >= count or about.st_blksize == 2 * MIB
    seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    assert seals == fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
    os.close(fd)


@pytest.mark.parametrize(("fillers", "is_filled"), [(1, False), (2, True), (8, True)])
def test_where_several_threads_may_it_is_filled_and_not_only_allocated(
    fillers, is_filled, tmp_path, monkeypatch
):
    enabled = tmp_path / "shmem_enabled"
    enabled.write_text("always advise [never]")
    monkeypatch.setattr(host_memory, "_SHMEM_ENABLED", enabled)
    count = 36 * MIB + 4096

    fd = make_memory(count, node=None, fillers=fillers)

    if os.fstat(fd).st_blksize == 4096:  # else memory comes in huge pages whatever was asked
        with mmap.mmap(fd, count) as pages:
            assert (set(filled(pages)) == {1}) is is_filled
    os.close(fd)


def filled(pages):
    """Tell for each page whether it is in memory: mincore(2)."""
    there = (ctypes.c_ubyte * (len(pages) // 4096))()
    first = ctypes.c_char.from_buffer(pages)
    size = ctypes.c_size_t(len(pages))
    assert ctypes.CDLL(None).mincore(ctypes.byref(first), size, there) == 0
    del first
    return [one & 1 for one in there]


def test_where_the_kernel_does_not_say_what_can_be_had_it_is_what_nobody_uses():
    meminfo = Meminfo(**PLENTY)
    meminfo.text = f"MemTotal: {64 << 10} kB\nMemFree: {8 << 10} kB\n"

    os.close(make_memory(SOME, node=None, meminfo=meminfo))
    with pytest.raises(OSError, match="5 MiB are needed, but only 4 MiB can be had"):
        make_memory(5 * MIB + 4096, node=None, meminfo=meminfo)


def test_a_machine_keeps_some_of_what_is_free_for_everybody_else():
    meminfo = Meminfo(total=16 * SOME, available=2 * SOME)  # a sixteenth of the total is kept

    os.close(make_memory(SOME, node=None, meminfo=meminfo))
    with pytest.raises(OSError, match="0 MiB are needed, but only 0 MiB can be had"):
        make_memory(SOME + 4096, node=None, meminfo=meminfo)


@pytest.mark.parametrize("node", [0, 63])  # there is hardly a node 63
def test_it_is_made_near_the_gpu_and_the_thread_is_as_before(node):
    meminfo = Meminfo(**PLENTY)
    before = mempolicy()

    os.close(make_memory(SOME, node=node, meminfo=meminfo))

    assert mempolicy() == before
    assert meminfo.policies == [PREFERRED if node == 0 else before]


def test_without_a_node_it_is_made_anywhere():
    meminfo = Meminfo(**PLENTY)

    os.close(make_memory(SOME, node=None, meminfo=meminfo))

    assert meminfo.policies == [mempolicy()]


@pytest.mark.parametrize(("told", "node"), [("1\n", 1), ("-1\n", None), ("?", None)])
def test_the_kernel_knows_where_a_gpu_is(tmp_path, told, node):
    place = tmp_path / "0000:3b:00.0"
    place.mkdir()
    (place / "numa_node").write_text(told)

    assert numa_node_of("00000000:3B:00.0", tmp_path) == node
    assert numa_node_of("00000000:5E:00.0", tmp_path) is None
