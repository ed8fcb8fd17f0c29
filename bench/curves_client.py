"""The trainer of bench/memory_curves.py: python -m bench.curves_client IMAGE ITERATIONS.

In the forward pass each layer allocates memory and computes; in the backward pass it computes and
frees the memory. Runs on the software GPU with the virtual clock. Prints `ready`, begins when a
line arrives on stdin, and at the end prints a JSON object.
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path
from typing import Any

from cuda.bindings import driver as cu

import tandem

MIB = 1 << 20
LAYERS, KERNELS, BLOCKS, THREADS = 8, 4, 32, 256
LAYER_BYTES = 80 * MIB
PEAK_BYTES = LAYERS * LAYER_BYTES


def checked(result: tuple[Any, ...]) -> Any:  # noqa: ANN401
    """Return the value of a call; exit if it failed."""
    status, *values = result
    if status != cu.CUresult.CUDA_SUCCESS:
        sys.exit(f"a driver call failed: {status.name}")
    return values[0] if values else None


def main() -> None:
    """Train; print when that began and ended, and the most memory the device had in use."""
    image, iterations = Path(sys.argv[1]).read_bytes(), int(sys.argv[2])
    checked(cu.cuInit(0))
    checked(cu.cuCtxSetCurrent(checked(cu.cuDevicePrimaryCtxRetain(checked(cu.cuDeviceGet(0))))))
    layer = checked(cu.cuModuleGetFunction(checked(cu.cuModuleLoadData(image)), b"layer"))
    clock = ctypes.CDLL("libcuda.so.1")
    clock.softgpu_now_ns.restype = ctypes.c_uint64
    print("ready", flush=True)
    clock.softgpu_wait_begin()  # virtual time passes meanwhile
    sys.stdin.readline()
    clock.softgpu_wait_end()
    begin_ns, used_bytes, total_bytes = clock.softgpu_now_ns(), 0, 0
    for _ in range(iterations):
        held = []
        for number in range(2 * LAYERS):
            if number < LAYERS:
                held.append(checked(cu.cuMemAlloc(LAYER_BYTES)))
                status, free_bytes, total_bytes = cu.cuMemGetInfo()
                checked((status,))
                used_bytes = max(used_bytes, total_bytes - free_bytes)
            for _ in range(KERNELS):
                checked(cu.cuLaunchKernel(layer, BLOCKS, 1, 1, THREADS, 1, 1, 0, 0, 0, 0))
            if number >= LAYERS:
                checked(cu.cuMemFree(held.pop()))
        checked(cu.cuCtxSynchronize())
        tandem.step()
    ended = {"begin_ns": begin_ns, "end_ns": clock.softgpu_now_ns(), "used_bytes": used_bytes}
    print(json.dumps({**ended, "total_bytes": total_bytes, "peak_bytes": PEAK_BYTES}))


if __name__ == "__main__":
    main()
