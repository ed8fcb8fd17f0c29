"""Makes host memory that a job can be given: a sealed memfd, filled beforehand.

It uses huge pages reserved in hugetlbfs if there are any, and else ordinary pages, which the kernel
makes huge where it may (`shmem_enabled` of transparent huge pages). The pages are on the GPU's NUMA
node as far as there is room. A shortage has to surface here: later it would be a SIGBUS in the job,
or the OOM killer would strike.

Allocation alone (fallocate(2)) leaves zeroing to the first thread that touches a page. That would
be the job's one thread that pins the memory, before anything is copied (4 GB/s, against 16 for
pages already filled). So several threads fill it here, if there are CPUs for that.
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
STEP = 16 << 20  # filled at once
MOST_THREADS = 8  # with more, memory is the bottleneck
KEPT_FREE_RATIO = 1 / 16  # of the machine's memory, for everybody else

_SHMEM_ENABLED = Path("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
_MADV_POPULATE_WRITE = 23  # Linux 5.14, <linux/mman.h>
_MPOL_DEFAULT, _MPOL_PREFERRED = 0, 1  # <linux/mempolicy.h>
_SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237}  # <asm/unistd.h>


def threads() -> int:
    """Return how many threads fill memory: half of the CPUs; with one it is not worth it."""
    return min(MOST_THREADS, len(os.sched_getaffinity(0)) // 2)


def make_memory(
    count: int,
    *,
    node: int | None,
    meminfo: Path = Path("/proc/meminfo"),
    fillers: int | None = None,
) -> int:
    """Make a sealed memfd of `count` bytes, all of them backed by memory. Any thread.

    Takes a second for some gigabytes. `node` is the GPU's NUMA node, if known; `fillers` is the
    number of filling threads, by default `threads()`.

    Raises:
        OSError: the machine has not so much memory.
    """
    with _preferring(node):
        with suppress(OSError):
            return _filled(count, os.MFD_HUGETLB | os.MFD_HUGE_2MB, lambda fd: None)
        left = _left_bytes(meminfo)
        if count > left:
            raise OSError(0, f"{count >> 20} MiB are needed, but only {left >> 20} MiB can be had")
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
    """Fill what can be filled in parallel; allocation does the rest.

    Some kernels use huge pages only if advised to.
    """
    advices = [_MADV_POPULATE_WRITE]
    if "[advise]" in _SHMEM_ENABLED.read_text():
        advices.insert(0, mmap.MADV_HUGEPAGE)
    elif fillers < 2:
        return

    steps = iter(range(0, count, STEP))  # its next() is atomic

    def fill() -> None:
        with _preferring(node):
            for at in steps:
                _advise(fd, at, min(STEP, count - at), advices)

    # No executor: Python joins an executor's threads at exit and so would finish filling in vain.
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
    """Advise one step at a time: mapping and unmapping block the daemon's other Python threads."""
    libc = ctypes.CDLL(None)  # its calls release the GIL, unlike mmap.madvise
    with mmap.mmap(fd, size, offset=at) as pages:
        first = ctypes.c_char.from_buffer(pages)
        for advice in advices:
            libc.madvise(ctypes.byref(first), ctypes.c_size_t(size), advice)
        del first  # the map cannot be closed before


def _left_bytes(meminfo: Path) -> int:
    """Return how much memory may be taken: filling more makes the kernel kill processes."""
    lines = (line.split() for line in meminfo.read_text().splitlines())
    sizes = {words[0]: int(words[1]) << 10 for words in lines}
    # If the kernel does not report what is available, use what is free.
    available = sizes.get("MemAvailable:", sizes.get("MemFree:", 0))
    return int(available - sizes["MemTotal:"] * KEPT_FREE_RATIO)


@contextmanager
def _preferring(node: int | None) -> Iterator[None]:
    """Place memory that this thread allocates on that node, while the node has room."""
    number = _SET_MEMPOLICY.get(platform.machine())
    if node is None or number is None:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    mask = (ctypes.c_ulong * 16)()  # 1024 nodes, as many as Linux has
    mask[node // 64] = 1 << node % 64
    libc.syscall(number, _MPOL_PREFERRED, mask, ctypes.c_ulong(1024))  # if refused, go on without
    try:
        yield
    finally:
        libc.syscall(number, _MPOL_DEFAULT, None, ctypes.c_ulong(0))
