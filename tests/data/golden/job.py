"""What the job of a golden record does: `job.py PTX`, or `job.py peer` for one that is only there.

Every figure that the tests expect of its pages is made here.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

MIB = 1 << 20
STEPS, LAUNCHES_A_STEP = 3, 2
KEPT, FREED, SHARED, TOO_MUCH, ELSEWHERE = 6 * MIB, 4 * MIB, 2 * MIB, 100 * MIB, 2 * MIB
OUT_OF_MEMORY = 2
STEP, PHASE_BEGIN = 1, 2  # tandem_mark_kind
PHASE = 0x1234567890ABCDEF

cu = ctypes.CDLL("libcuda.so.1")
Address = ctypes.c_uint64


def call(name: str, *arguments: object, expected: int = 0) -> None:
    """A call of the driver, which has to end as expected."""
    status = getattr(cu, name)(*arguments)
    if status != expected:
        sys.exit(f"{name}: {status}")


def begin_on(device: int) -> None:
    context = ctypes.c_void_p()
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)


def allocate(count: int, *, expected: int = 0) -> Address:
    address = Address()
    call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(count), expected=expected)
    return address


def kernel(ptx: Path) -> ctypes.c_void_p:
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    call("cuModuleLoadData", ctypes.byref(module), ptx.read_bytes() + b"\0")
    call("cuModuleGetFunction", ctypes.byref(function), module, b"saxpy")
    return function


def iterate(function: ctypes.c_void_p, x: Address) -> None:
    """Nothing of the vectors is computed: there are 0 elements."""
    parameters = (ctypes.c_void_p * 4)()
    values = [ctypes.c_float(2), x, x, Address(0)]
    for index, value in enumerate(values):
        parameters[index] = ctypes.addressof(value)
    for _ in range(LAUNCHES_A_STEP):
        call("cuLaunchKernel", function, 7, 1, 1, 32, 1, 1, 0, None, parameters, None)
    call("cuCtxSynchronize")
    ctypes.CDLL(None).tandem_mark_v1(STEP, Address(0), Address(0))


def work(ptx: Path) -> Callable[[], None]:
    kept, freed, shared = allocate(KEPT), allocate(FREED), allocate(SHARED)
    call("cuMemFree_v2", freed)
    allocate(TOO_MUCH, expected=OUT_OF_MEMORY)
    call("cuMemsetD8_v2", kept, ctypes.c_uint8(7), ctypes.c_size_t(MIB))
    function = kernel(ptx)
    for _ in range(STEPS):
        iterate(function, kept)
    ctypes.CDLL(None).tandem_mark_v1(PHASE_BEGIN, Address(PHASE), Address(0))
    call("cuIpcGetMemHandle", (ctypes.c_char * 64)(), shared)
    begin_on(1)
    call("cuMemsetD8_v2", allocate(ELSEWHERE), ctypes.c_uint8(7), ctypes.c_size_t(MIB))
    begin_on(0)
    return partial(iterate, function, kept)


def main() -> None:
    call("cuInit", 0)
    begin_on(0)
    if sys.argv[1] == "peer":
        again = partial(allocate, MIB)
        again()
    else:
        again = work(Path(sys.argv[1]))
    print("done", flush=True)
    for _ in sys.stdin:  # once more for each line
        again()
        print("done", flush=True)


if __name__ == "__main__":
    main()
