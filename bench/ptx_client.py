"""The program that bench/ptx.py times: python -m bench.ptx_client IMAGE ROUNDS."""

from __future__ import annotations

import array
import ctypes
import json
import sys
import time
from pathlib import Path
from typing import Any

from cuda.bindings import driver as cu

from bench.curves_client import checked

Handle = Any  # from cuda.bindings, which has no types
BLOCKS, THREADS = 16, 256
LANES = BLOCKS * THREADS
WIDTH, LIMIT = 64, 500
# Arguments after the pointer.
KERNELS: dict[str, tuple[int, ...]] = {
    "mix": (300,),
    "mandelbrot": (WIDTH, LIMIT),
    "smooth": (200,),
}


def timed(module: Handle, kernel: str, pointer: int) -> float:
    """Launch a kernel; return the seconds until it has ended."""
    function = checked(cu.cuModuleGetFunction(module, kernel.encode()))
    given = KERNELS[kernel]
    arguments = ((pointer, *given), (ctypes.c_void_p, *[ctypes.c_int] * len(given)))
    start = time.perf_counter()
    checked(cu.cuLaunchKernel(function, BLOCKS, 1, 1, THREADS, 1, 1, 0, 0, arguments, 0))
    checked(cu.cuCtxSynchronize())
    return time.perf_counter() - start


def turns_of(kernel: str, pointer: int) -> int:
    """The total number of loop turns over all lanes."""
    if kernel != "mandelbrot":
        return LANES * KERNELS[kernel][0]
    steps = array.array("I", bytes(4 * LANES))
    checked(cu.cuMemcpyDtoH(steps.buffer_info()[0], pointer, 4 * LANES))
    return sum(steps)


def main() -> None:
    """Print JSON: kernel -> seconds interpreted, seconds compiled, turns of its loop."""
    image, rounds = Path(sys.argv[1]).read_bytes(), int(sys.argv[2])
    checked(cu.cuInit(0))
    checked(cu.cuCtxSetCurrent(checked(cu.cuDevicePrimaryCtxRetain(0))))
    text = Path(__file__).with_name("ptx.ptx").read_bytes() + b"\0"
    modules = {
        "ptx_s": checked(cu.cuModuleLoadData(text)),
        "host_s": checked(cu.cuModuleLoadData(image)),
    }
    pointer = int(checked(cu.cuMemAlloc(4 * LANES + 64)))
    found = {}
    for kernel in KERNELS:
        best = dict.fromkeys(modules, float("inf"))
        for _ in range(rounds):
            checked(cu.cuMemsetD8(pointer, 0, 4 * LANES + 64))
            for name, module in modules.items():
                best[name] = min(best[name], timed(module, kernel, pointer))
        found[kernel] = {**best, "turns": turns_of(kernel, pointer)}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
