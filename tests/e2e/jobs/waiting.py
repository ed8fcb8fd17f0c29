"""In a job on the virtual clock: work that waits for other work.

Each function like `value` submits something that cannot end, lets its turn pass to another job,
submits what the first thing waits for, and returns what was computed and for how many milliseconds
the second submission was held.
"""

import ctypes
import mmap
import threading

from cuda.bindings import driver as cu
from gpu import ok, outside

NON_BLOCKING, GEQ = 1, 0
LAZY = cu.CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
CLOCK = ctypes.CDLL("libcuda.so.1")
CLOCK.softgpu_now_ns.restype = ctypes.c_uint64
HostFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def now_ms() -> float:
    return CLOCK.softgpu_now_ns() / 1e6


def pause(ms: float) -> None:
    """Pause long enough for the turn to pass on."""
    CLOCK.softgpu_wait_until_ns(ctypes.c_uint64(CLOCK.softgpu_now_ns() + int(ms * 1e6)))


def short(gpu) -> None:
    """Run a kernel of about 2 ms to its end."""
    if not hasattr(gpu, "numbers"):
        gpu.numbers = ok(cu.cuMemAlloc(4))
    pointers = (gpu.numbers,) * 3
    types = (None, None, None, ctypes.c_int)
    ok(gpu.launch("vadd", (*pointers, 0), types, grid=650, block=256))
    ok(cu.cuCtxSynchronize())


def short_for(gpu, ms: float, pause_ms: float) -> None:
    """Run such kernels for `ms`, waiting for each, with a pause of the host after each."""
    end_ms = now_ms() + ms
    while now_ms() < end_ms:
        short(gpu)
        pause(pause_ms)


def streams() -> tuple[object, object]:
    return ok(cu.cuStreamCreate(NON_BLOCKING)), ok(cu.cuStreamCreate(NON_BLOCKING))


def value(gpu, data, lose_turn_ms):
    """A stream waits for a value that another stream of the job writes."""
    (first, second), flag, other = streams(), gpu.word(0), gpu.word(0)
    ok(cu.cuStreamWaitValue32(first, flag, 1, GEQ))
    gpu.affine(data, 2, 1, stream=first)
    pause(lose_turn_ms)
    before_ms = now_ms()
    gpu.affine(other, 3, 0, stream=second)
    held_ms = now_ms() - before_ms
    ok(cu.cuStreamWriteValue32(second, flag, 1, 0))
    ok(cu.cuCtxSynchronize())
    return gpu.read(data), held_ms


def event(gpu, data, lose_turn_ms):
    """A stream waits for another stream's event, and gets work when the turn has been lost."""
    (first, second), reached = streams(), ok(cu.cuEventCreate(0))
    gpu.affine(data, 2, 1, stream=first)
    ok(cu.cuEventRecord(reached, first))
    ok(cu.cuStreamWaitEvent(second, reached, 0))
    pause(lose_turn_ms)
    before_ms = now_ms()
    gpu.affine(data, 2, 1, stream=second)
    held_ms = now_ms() - before_ms
    ok(cu.cuCtxSynchronize())
    return gpu.read(data), held_ms


def host_function(gpu, data, lose_turn_ms):
    """A host function in one stream waits for the work of another."""
    (first, second), go, other = streams(), threading.Event(), gpu.word(0)

    @HostFunction
    def wait(_):
        with outside():
            go.wait()

    ok(cu.cuLaunchHostFunc(first, ctypes.cast(wait, ctypes.c_void_p).value, 0))
    gpu.affine(data, 2, 1, stream=first)
    pause(lose_turn_ms)
    before_ms = now_ms()
    gpu.affine(other, 3, 0, stream=second)
    held_ms = now_ms() - before_ms
    ok(cu.cuStreamSynchronize(second))
    go.set()
    ok(cu.cuCtxSynchronize())
    return gpu.read(data), held_ms


def from_host(gpu, data, lose_turn_ms):
    """A stream waits for a value that the host writes after another launch."""
    (first, second), page, other = streams(), ok(cu.cuMemHostAlloc(4, 0)), gpu.word(0)
    word = ctypes.c_uint32.from_address(page)
    word.value = 0
    ok(cu.cuStreamWaitValue32(first, page, 1, GEQ))
    gpu.affine(data, 2, 1, stream=first)
    pause(lose_turn_ms)
    before_ms = now_ms()
    gpu.affine(other, 3, 0, stream=second)
    held_ms = now_ms() - before_ms
    ok(cu.cuStreamSynchronize(second))
    word.value = 1
    ok(cu.cuCtxSynchronize())
    return gpu.read(data), held_ms


def how_long(compute) -> float:
    """Return how many milliseconds the call takes."""
    began_ms = now_ms()
    compute()
    return now_ms() - began_ms


def export(gpu) -> str:
    """Make three words for two ranks, a flag of each and one both change; return an IPC handle."""
    gpu.shared = ok(cu.cuMemAlloc(12))
    ok(cu.cuMemsetD32(gpu.shared, 0, 3))
    ok(cu.cuCtxSynchronize())
    return ctypes.string_at(ok(cu.cuIpcGetMemHandle(gpu.shared)).getPtr(), 64).hex()


def import_(gpu, handle: str) -> None:
    """Open the same words in another process."""
    opened = cu.CUipcMemHandle()
    ctypes.memmove(opened.getPtr(), bytes.fromhex(handle), 64)
    gpu.shared = ok(cu.cuIpcOpenMemHandle(opened, LAZY))


def map_(gpu, path: str) -> None:
    """Map the words from a file that every rank maps: nobody sees that the ranks share them."""
    with open(path, "r+b") as file:
        gpu.page = mmap.mmap(file.fileno(), 4096)
    address = ctypes.addressof(ctypes.c_char.from_buffer(gpu.page))
    ok(cu.cuMemHostRegister(address, 4096, cu.CU_MEMHOSTREGISTER_DEVICEMAP))
    gpu.shared = ok(cu.cuMemHostGetDevicePointer(address, 0))


def reduce(gpu, rank: int, rounds: int) -> float:
    """Compute, say so and wait for the other rank, `rounds` times; return the milliseconds."""
    stream, own, other = ok(cu.cuStreamCreate(NON_BLOCKING)), rank * 4, (1 - rank) * 4
    began_ms, data = now_ms(), gpu.word(0)
    for number in range(1, rounds + 1):
        gpu.affine(data, 1, 1, stream=stream)
        ok(cu.cuStreamWriteValue32(stream, int(gpu.shared) + own, number, 0))
        ok(cu.cuStreamWaitValue32(stream, int(gpu.shared) + other, number, GEQ))
        gpu.affine(data, 1, 1, stream=stream)
        ok(cu.cuStreamSynchronize(stream))
    assert gpu.read(data) == [2 * rounds]
    return now_ms() - began_ms
