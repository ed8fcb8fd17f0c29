"""Makes memory of the host that a job can be given: a sealed memfd, filled beforehand.

Of huge pages that are set aside for whoever asks (hugetlbfs), else of ordinary ones, which the
kernel makes huge where it may (`shmem_enabled` of transparent huge pages). On the NUMA node of the
GPU as far as there is room. A page that cannot be had must be missed here: later it would be a
SIGBUS in the job, or the kernel would kill somebody for it.

Allocating alone (fallocate(2)) leaves it to whoever touches a page first to fill it with zeros:
that would be the one thread of the job that pins it, before anything is copied (4 GB/s; 16 of what
is filled). So several threads fill it here, where there are CPUs for that.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import platform
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
STEP = 16 << 20  # that is filled at once
MOST_THREADS = 8  # for that: with more the memory is what is slow
KEPT_FREE_RATIO = 1 / 16  # of the machine's memory, for everybody else

_SHMEM_ENABLED = Path("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
_MADV_POPULATE_WRITE = 23  # Linux 5.14, <linux/mman.h>
_MPOL_DEFAULT, _MPOL_PREFERRED = 0, 1  # <linux/mempolicy.h>
_SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237}  # <asm/unistd.h>


def threads() -> int:
    """How many fill memory: half of the CPUs; with one it is not worth it."""
    return min(MOST_THREADS, len(os.sched_getaffinity(0)) // 2)


def make_memory(
    count: int,
    *,
    node: int | None,
    meminfo: Path = Path("/proc/meminfo"),
    fillers: int | None = None,
) -> int:
    """A sealed memfd of `count` bytes, all of them there. Any thread.

    Takes a second for some gigabytes. `node` is the GPU's NUMA node, if that is known; `fillers`
    threads help, as many as `threads` says where that is not said.

    Raises:
        OSError: the machine has not so much.
    """
    with _preferring(node):
        with suppress(OSError):
            return _filled(count, os.MFD_HUGETLB | os.MFD_HUGE_2MB, lambda fd: None)
        left = _left_bytes(meminfo)
        if count > left:
            raise OSError(0, f"{count >> 20} MiB are asked for, and {left >> 20} MiB can be given")
        count_of_fillers = threads() if fillers is None else fillers
        return _filled(count, 0, lambda fd: _fill(fd, count, node, count_of_fillers))


def _filled(count: int, flags: int, fill: Callable[[int], None]) -> int:
    fd = os.memfd_create("tandem-host-pool", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING | flags)
    try:
        os.fchmod(fd, 0o600)
        os.ftruncate(fd, count)
        with suppress(OSError):
            fill(fd)
        os.posix_fallocate(fd, 0, count)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _fill(fd: int, count: int, node: int | None, fillers: int) -> None:
    """What this does not fill, allocating will. Some kernels have to be asked for huge pages."""
    advices = [_MADV_POPULATE_WRITE]
    if "[advise]" in _SHMEM_ENABLED.read_text():
        advices.insert(0, mmap.MADV_HUGEPAGE)
    elif fillers < 2:
        return

    steps = iter(range(0, count, STEP))  # next() of it is atomic

    def fill() -> None:
        with _preferring(node):
            for at in steps:
                _advise(fd, at, min(STEP, count - at), advices)

    # Not an executor's, which Python waits for at its end: whoever leaves would fill it for nobody.
    helpers = [
        threading.Thread(target=fill, name="fill-host-memory", daemon=True)
        for _ in range(fillers - 1)
    ]
    for helper in helpers:
        helper.start()
    fill()
    for helper in helpers:
        helper.join()


def _advise(fd: int, at: int, size: int, advices: Iterable[int]) -> None:
    """Nobody else in the daemon goes on while a map is made or taken away: so step by step."""
    libc = ctypes.CDLL(None)  # in whose functions others go on, unlike in mmap.madvise
    with mmap.mmap(fd, size, offset=at) as pages:
        first = ctypes.c_char.from_buffer(pages)
        for advice in advices:
            libc.madvise(ctypes.byref(first), ctypes.c_size_t(size), advice)
        del first  # or the map could not be closed


def _left_bytes(meminfo: Path) -> int:
    """What may be taken: to fill a memfd with more makes the kernel kill processes."""
    lines = (line.split() for line in meminfo.read_text().splitlines())
    sizes = {words[0]: int(words[1]) << 10 for words in lines}
    # Where the kernel does not say what may be had, it is what nobody uses.
    available = sizes.get("MemAvailable:", sizes.get("MemFree:", 0))
    return int(available - sizes["MemTotal:"] * KEPT_FREE_RATIO)


@contextmanager
def _preferring(node: int | None) -> Iterator[None]:
    """What this thread makes come to be is on that node, while it has room."""
    number = _SET_MEMPOLICY.get(platform.machine())
    if node is None or number is None:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    mask = (ctypes.c_ulong * 16)()  # of 1024 nodes, as many as Linux has
    mask[node // 64] = 1 << node % 64
    libc.syscall(number, _MPOL_PREFERRED, mask, ctypes.c_ulong(1024))  # refused: as without it
    try:
        yield
    finally:
        libc.syscall(number, _MPOL_DEFAULT, None, ctypes.c_ulong(0))
