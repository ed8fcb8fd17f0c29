"""Requests, and other work, that take longer the smaller their set of SMs is; virtual clock."""

from cuda.bindings import driver as cu
from gpu import ok
from waiting import CLOCK, NON_BLOCKING

import tandem

BLOCKS, SHARED_BYTES = 2048, 48 << 10  # four blocks fit on an SM, so a kernel can use all SMs


def compute(gpu, kernels: int) -> None:
    """Run the kernels and wait for them; each takes 640 us on the 8 SMs of one group."""
    if not hasattr(gpu, "divisible"):
        gpu.divisible, gpu.stream = gpu.function("divisible"), ok(cu.cuStreamCreate(NON_BLOCKING))
    for _ in range(kernels):
        where = (SHARED_BYTES, gpu.stream, ((), ()), 0)
        ok(cu.cuLaunchKernel(gpu.divisible, BLOCKS, 1, 1, 1, 1, 1, *where))
    ok(cu.cuStreamSynchronize(gpu.stream))


def serve(gpu, *loads: tuple[str, int, int]) -> list[int]:
    """Answer requests one by one; a load is its phase, kernels per request, and length in ms.

    Returns when each load began and when the last one ended, in nanoseconds of the device's clock.
    """
    handle, began_ns = tandem.slo(p99_ms=1)(compute), []
    for phase, kernels, ms in loads:
        began_ns.append(CLOCK.softgpu_now_ns())
        with tandem.phase(phase):
            while CLOCK.softgpu_now_ns() < began_ns[-1] + ms * 1_000_000:
                handle(gpu, kernels)
    return [*began_ns, CLOCK.softgpu_now_ns()]
