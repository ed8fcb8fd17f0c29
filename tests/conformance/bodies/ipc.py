"""Memory and events that two processes share."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

from cuda.bindings import driver as cu
from gpu import Gpu, address, ok, outside, refused, u32

LAZY = cu.CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
POSIX_FD = cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
PINNED = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
ON_DEVICE = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
MIB = 1 << 20


def _in_another_process(function, *payload: bytes, fd: int | None = None) -> list[str]:
    """Run a function of this module in another process with that payload; return its output."""
    command = [sys.executable, str(Path(__file__).parent), "ipc", function.__name__]
    lines = [*(data.hex() for data in payload), *([str(fd)] if fd is not None else [])]
    with outside():
        child = subprocess.run(
            command,
            input="\n".join(lines) + "\n",
            pass_fds=() if fd is None else (fd,),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    return child.stdout.split()


def _bytes(handle) -> bytes:
    return ctypes.string_at(handle.getPtr(), 64)


def _received(kind):
    handle = kind()
    ctypes.memmove(handle.getPtr(), bytes.fromhex(input()), 64)
    return handle


def another_process_sees_the_bytes_and_writes_them():
    gpu = Gpu()
    data = gpu.word(41)
    handle = ok(cu.cuIpcGetMemHandle(data))
    assert _bytes(ok(cu.cuIpcGetMemHandle(data))) == _bytes(handle)
    assert _in_another_process(_reads_and_adds_one, _bytes(handle)) == ["41"]
    assert gpu.read(data) == [42]


def _reads_and_adds_one():
    gpu = Gpu()
    handle = _received(cu.CUipcMemHandle)
    data = ok(cu.cuIpcOpenMemHandle(handle, LAZY))
    print(*gpu.read(data))
    again = ok(cu.cuIpcOpenMemHandle(handle, LAZY))
    assert int(again) == int(data)
    gpu.affine(data, 1, 1)
    ok(cu.cuCtxSynchronize())
    assert refused(cu.cuMemFree(data)) == "INVALID_VALUE"
    for _ in range(2):
        ok(cu.cuIpcCloseMemHandle(data))
    assert refused(cu.cuIpcCloseMemHandle(data)) == "INVALID_VALUE"


def sharing_keeps_what_was_written_before():
    gpu = Gpu()
    data = ok(cu.cuMemAlloc(8 * MIB))
    ok(cu.cuMemsetD32(data, 7, 2 * MIB))
    ok(cu.cuMemsetD32(int(data) + 4 * MIB, 9, 1))
    ok(cu.cuIpcGetMemHandle(data))
    assert gpu.read(int(data) + 4 * MIB - 4, 3) == [7, 9, 7]
    assert gpu.read(int(data) + 8 * MIB - 4) == [7]


def an_event_orders_the_work_of_two_processes():
    gpu = Gpu()
    stream, data = ok(cu.cuStreamCreate(1)), gpu.word(1)
    flags = cu.CUevent_flags
    event = ok(cu.cuEventCreate(flags.CU_EVENT_INTERPROCESS | flags.CU_EVENT_DISABLE_TIMING))
    memory = ok(cu.cuIpcGetMemHandle(data))
    handle = ok(cu.cuIpcGetEventHandle(event))
    gpu.affine(data, 1, 1, stream=stream, slow=True)
    ok(cu.cuEventRecord(event, stream))
    payload = (_bytes(memory), _bytes(handle))
    assert _in_another_process(_waits_then_doubles, *payload) == ["4"]
    # The other process has recorded the event again, after its own work.
    ok(cu.cuEventSynchronize(event))
    ok(cu.cuEventQuery(event))
    assert gpu.read(data) == [4]


def _waits_then_doubles():
    gpu = Gpu()
    stream = ok(cu.cuStreamCreate(1))
    data = ok(cu.cuIpcOpenMemHandle(_received(cu.CUipcMemHandle), LAZY))
    event = ok(cu.cuIpcOpenEventHandle(_received(cu.CUipcEventHandle)))
    ok(cu.cuStreamWaitEvent(stream, event, 0))
    gpu.affine(data, 2, 0, stream=stream)
    ok(cu.cuEventRecord(event, stream))
    ok(cu.cuEventSynchronize(event))
    print(*gpu.read(data))
    ok(cu.cuEventDestroy(event))
    ok(cu.cuIpcCloseMemHandle(data))


def handles_are_refused_where_they_mean_nothing():
    gpu = Gpu()
    data = gpu.word(0)
    memory = ok(cu.cuIpcGetMemHandle(data))
    assert refused(cu.cuIpcOpenMemHandle(memory, LAZY)) in ("INVALID_CONTEXT", "INVALID_VALUE")
    assert refused(cu.cuIpcGetMemHandle(address(u32(0)))) == "INVALID_VALUE"
    flags = cu.CUevent_flags
    assert refused(cu.cuEventCreate(flags.CU_EVENT_INTERPROCESS)) == "INVALID_VALUE"
    plain = ok(cu.cuEventCreate(flags.CU_EVENT_DISABLE_TIMING))
    assert refused(cu.cuIpcGetEventHandle(plain)) in ("INVALID_HANDLE", "INVALID_VALUE")
    ok(cu.cuMemFree(data))
    errors = _in_another_process(_opens_in_vain, _bytes(memory))
    assert errors == ["INVALID_VALUE", "refused"]


def _opens_in_vain():
    Gpu()
    handle = _received(cu.CUipcMemHandle)
    print(refused(cu.cuIpcOpenMemHandle(handle, 0x80)))
    refused(cu.cuIpcOpenMemHandle(handle, LAZY))
    print("refused")


def a_pool_crosses_as_a_descriptor_and_its_memory_as_data():
    gpu = Gpu()
    props = cu.CUmemPoolProps()
    props.allocType, props.handleTypes = PINNED, POSIX_FD
    props.location.type = ON_DEVICE
    pool = ok(cu.cuMemPoolCreate(props))
    first, second = (ok(cu.cuMemAllocFromPoolAsync(4, pool, 0)) for _ in range(2))
    for data, value in ((first, 5), (second, 6)):
        ok(cu.cuMemsetD32(data, value, 1))
    ok(cu.cuCtxSynchronize())
    fd = int(ok(cu.cuMemPoolExportToShareableHandle(pool, POSIX_FD, 0)))
    exported = ok(cu.cuMemPoolExportPointer(second))
    assert _in_another_process(_reads_of_a_pool, _bytes(exported), fd=fd) == ["6"]
    os.close(fd)
    assert gpu.read(second) == [60]
    for data in (first, second):
        ok(cu.cuMemFreeAsync(data, 0))
    ok(cu.cuCtxSynchronize())
    ok(cu.cuMemPoolDestroy(pool))


def _reads_of_a_pool():
    gpu = Gpu()
    exported = _received(cu.CUmemPoolPtrExportData)
    pool = ok(cu.cuMemPoolImportFromShareableHandle(int(input()), POSIX_FD, 0))
    refused(cu.cuMemAllocFromPoolAsync(4, pool, 0))
    data = ok(cu.cuMemPoolImportPointer(pool, exported))
    print(*gpu.read(data))
    gpu.affine(data, 10, 0)
    ok(cu.cuCtxSynchronize())
    ok(cu.cuMemFree(data))
    ok(cu.cuMemPoolDestroy(pool))


def mapped_memory_crosses_as_a_descriptor():
    gpu = Gpu()
    prop = cu.CUmemAllocationProp()
    prop.type, prop.requestedHandleTypes = PINNED, POSIX_FD
    prop.location.type = ON_DEVICE
    handle = ok(cu.cuMemCreate(2 * MIB, prop, 0))
    data = _map(handle)
    ok(cu.cuMemsetD32(data, 3, 1))
    ok(cu.cuCtxSynchronize())
    fd = int(ok(cu.cuMemExportToShareableHandle(handle, POSIX_FD, 0)))
    ok(cu.cuMemRelease(handle))
    assert _in_another_process(_maps_and_triples, fd=fd) == ["3"]
    os.close(fd)
    assert gpu.read(data) == [9]


def _map(handle):
    data = ok(cu.cuMemAddressReserve(2 * MIB, 0, 0, 0))
    ok(cu.cuMemMap(data, 2 * MIB, 0, handle, 0))
    access = cu.CUmemAccessDesc()
    access.location.type = ON_DEVICE
    access.flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    ok(cu.cuMemSetAccess(data, 2 * MIB, [access], 1))
    return data


def _maps_and_triples():
    gpu = Gpu()
    data = _map(ok(cu.cuMemImportFromShareableHandle(int(input()), POSIX_FD)))
    print(*gpu.read(data))
    gpu.affine(data, 3, 0)
    ok(cu.cuCtxSynchronize())
