"""Shares memory that can be moved with another process; prints what was seen.

    python tests/shim/memory_sharing.py SOCKET_FOLDER CASE [ARGUMENT...]

Runs in the environment of the software GPU with the shim preloaded. CASE is a function below; its
result is printed as one JSON object.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import select
import subprocess
import sys
from pathlib import Path

from cuda.bindings import driver as cu
from memory_limits import ok
from swap_moves import EVERYTHING, MIB, Daemon, Memory, pattern

from tandem import _native

LAZY = cu.CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
LEGACY = cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE
LARGE, SMALL = 34 * MIB, 5_000


def handle_of(address: int) -> str:
    """Return the handle from cuIpcGetMemHandle as hexadecimal digits."""
    return ctypes.string_at(ok(cu.cuIpcGetMemHandle(address)).getPtr(), 64).hex()


def opened(handle: str):
    """Open the handle; return the driver's answer and the address."""
    given = cu.CUipcMemHandle()
    ctypes.memmove(given.getPtr(), bytes.fromhex(handle), 64)
    return cu.cuIpcOpenMemHandle(given, LAZY)


def content(address: int, size: int) -> bytes:
    host = bytearray(size)
    ok(cu.cuMemcpyDtoH(host, address, size))
    return bytes(host)


def other(folder: Path, case: str, *arguments: str) -> subprocess.Popen:
    """Start another process with its own daemon."""
    place = folder / str(len(list(folder.iterdir())))  # short, because a socket's path is limited
    place.mkdir()
    return subprocess.Popen(
        [sys.executable, __file__, str(place), case, *arguments],
        env={**os.environ, "TANDEM_RUNTIME_DIR": str(place)},
        stdout=subprocess.PIPE,
        text=True,
    )


def said(daemon: Daemon, process: subprocess.Popen):
    """Wait for the process to end and return what it printed."""
    daemon.outlive(process)
    out = process.communicate()[0]
    assert process.returncode == 0, out
    return json.loads(out)


def told(daemon: Daemon, count: int) -> list[int]:
    """Return the first `count` keys of what it shares, in the order they arrived."""
    connection, keys = daemon.job.connection, []
    while len(keys) < count:
        daemon.wait_for(lambda _: select.select([connection], [], [], 0)[0])
        keys.append(_native.decode(connection.recv(4096)).key)
    return keys


def reads_and_writes(folder, *shared, swappable=True):
    """Read and write each shared memory, given as handle, seed, size; return what came of each."""
    daemon = Daemon(folder, swappable=swappable)
    seen = [read_and_write(*each) for each in zip(*[iter(shared)] * 3, strict=True)]
    opened = [one for one in seen if one["answer"] == "CUDA_SUCCESS"]
    for one, key in zip(opened, told(daemon, len(opened)), strict=True):
        one["key"] = key
    return seen


def read_and_write(handle, seed, size):
    """Open it; tell whether its bytes are those of `seed`, and leave those of the next seed."""
    status, address = opened(handle)
    if status != cu.CUresult.CUDA_SUCCESS:
        return {"answer": status.name}
    seed, size = int(seed), int(size)
    right = content(address, size) == pattern(seed, size)
    ok(cu.cuMemcpyHtoD(address, pattern(seed + 1, size), size))
    base, span = cu.cuMemGetAddressRange(int(address) + size - 1)[1:]
    again = ok(opened(handle))
    closed = [cu.cuIpcCloseMemHandle(address)[0].name for _ in range(3)]
    return {
        "answer": status.name,
        "right": right,
        "range": [int(base) == int(address), int(span)],
        "same": int(again) == int(address),
        "freed": cu.cuMemFree(address)[0].name,
        "closed": closed,
    }


def reads_and_writes_as_who_stays(folder, *shared):
    """Do the same in a job whose memory cannot be moved."""
    return reads_and_writes(folder, *shared, swappable=False)


def there_and_back(folder, opener="reads_and_writes", *, swappable=True):
    """Another process finds the bytes, and this one finds what the other writes."""
    daemon = Daemon(folder, swappable=swappable)
    beside, memory = Memory((SMALL, 256)), Memory((LARGE, SMALL))
    handles = [handle_of(address) for address in memory.addresses]
    same = handles == [handle_of(address) for address in memory.addresses]
    shared = zip(handles, "01", map(str, memory.sizes), strict=True)
    seen = said(daemon, other(folder, opener, *itertools.chain(*shared)))
    written = [
        content(address, size) == pattern(seed + 1, size)
        for seed, (address, size) in enumerate(zip(memory.addresses, memory.sizes, strict=True))
    ]
    return {
        "seen": seen,
        "same": same,
        "handles": handles,
        "keys": told(daemon, 2),
        "written": written,
        "beside": beside.is_right(),
    }


def there_and_back_with_who_stays(folder):
    """The job that opens the memory cannot be moved."""
    return there_and_back(folder, "reads_and_writes_as_who_stays")


def there_and_back_of_the_driver(folder):
    """Neither job can be moved, so the driver shares the memory."""
    return there_and_back(folder, "reads_and_writes_as_who_stays", swappable=False)


def stays_while_others_go(folder):
    """Shared memory stays on the device and in use while the rest is out."""
    daemon = Daemon(folder)
    memory = Memory((4 * MIB, LARGE, 2 * MIB, SMALL))
    before = daemon.job.snapshot().swappable_bytes
    shared = memory.addresses[1]
    handle = handle_of(shared)
    after = daemon.job.snapshot()
    daemon.job.give_pool(after.swappable_bytes)
    out = daemon.move(0)
    (one,) = said(daemon, other(folder, "reads_and_writes", handle, "1", str(LARGE)))
    back = daemon.move(EVERYTHING)
    written = content(shared, LARGE) == pattern(2, LARGE)
    right = memory.is_right()
    for address in memory.addresses:
        ok(cu.cuMemFree(address))
    left = daemon.job.snapshot()
    return {
        "swappable": [before, after.swappable_bytes, left.swappable_bytes],
        "device": [after.device_bytes, left.device_bytes],
        "out": out,
        "back": back,
        "opened": one,
        "written": written,
        "right": right,
    }


def gives(folder, place):
    """Write a handle to a file, then wait until told to end."""
    daemon, place = Daemon(folder), Path(place)
    memory = Memory((LARGE,))
    (place / "new").write_text(handle_of(memory.addresses[0]))
    (place / "new").rename(place / "handle")
    daemon.wait_for(lambda _: (place / "go").exists())
    return {}


def outlives_its_owner(folder):
    """Memory exists as long as a process has it open, and is not given to anybody else."""
    daemon = Daemon(folder)
    owner = other(folder, "gives", str(folder))
    daemon.wait_for(lambda _: (folder / "handle").exists())
    handle = (folder / "handle").read_text()
    address = ok(opened(handle))
    (folder / "go").touch()
    said(daemon, owner)
    right = content(address, LARGE) == pattern(0, LARGE)
    ok(cu.cuMemsetD32(address, 7, 1))
    seen = daemon.job.snapshot()
    ok(cu.cuIpcCloseMemHandle(address))
    return {
        "right": right,
        "closed": cu.cuMemcpyDtoH(bytearray(4), address, 4)[0].name,
        "counted": seen.device_bytes,
        "anew": opened(handle)[0].name,
    }


def what_is_freed(folder):
    """A handle of freed memory opens nothing, whatever lies there by then."""
    daemon = Daemon(folder)
    kept, packed, large = (ok(cu.cuMemAlloc(size)) for size in (SMALL, SMALL, 2 * MIB))
    handles = [handle_of(packed), handle_of(large)]
    for address in (packed, large):
        ok(cu.cuMemFree(address))
    anew = ok(cu.cuMemAlloc(SMALL))
    shared = itertools.chain(*((handle, "0", "4") for handle in handles))
    seen = said(daemon, other(folder, "reads_and_writes", *shared))
    return {
        "same_place": int(anew) == int(packed),
        "beside": int(kept) // (2 * MIB) == int(packed) // (2 * MIB),
        "answers": [one["answer"] for one in seen],
    }


def odd_handles(folder):
    """Odd handles are refused, each in its way."""
    _daemon = Daemon(folder)  # once it is gone, nothing can be moved
    address = ok(cu.cuMemAlloc(4 * MIB))
    legacy = ok(cu.cuPointerGetAttribute(LEGACY, address))
    handle = handle_of(int(address) + 4096)
    return {
        "legacy": int(legacy),
        "inside": handle == handle_of(address),
        "own": opened(handle)[0].name,
        "foreign": opened("ff" * 64)[0].name,
        "nobody": opened(handle[:16] + "11" * 56)[0].name,
        "retained": cu.cuMemRetainAllocationHandle(address)[0].name,
    }


def main():
    ok(cu.cuInit(0))
    folder, case, *arguments = sys.argv[1:]
    json.dump(globals()[case](Path(folder), *arguments), sys.stdout)


if __name__ == "__main__":
    main()
