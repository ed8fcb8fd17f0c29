"""Constant load: requests that arrive at random, and training; on the virtual clock."""

import ctypes
from random import Random

from cuda.bindings import driver as cu
from gpu import ok
from waiting import CLOCK, NON_BLOCKING

import tandem

SHARED_BYTES = 48 << 10  # four blocks fit on an SM


def compute(gpu, blocks: int) -> None:
    """Run the blocks and wait for them; 2,500 blocks take 2 ms on all SMs."""
    if not hasattr(gpu, "divisible"):
        gpu.divisible, gpu.stream = gpu.function("divisible"), ok(cu.cuStreamCreate(NON_BLOCKING))
    where = (SHARED_BYTES, gpu.stream, ((), ()), 0)
    ok(cu.cuLaunchKernel(gpu.divisible, blocks, 1, 1, 1, 1, 1, *where))
    ok(cu.cuStreamSynchronize(gpu.stream))


def train(gpu, blocks: int) -> None:
    """Run one iteration."""
    compute(gpu, blocks)
    tandem.step()


def serve(gpu, blocks: int, *, rate: float, seed: int, seconds: float, spread: float = 0.2) -> int:
    """Serve requests one by one, without a pause while more are due; return the end in ns.

    `spread`: the standard deviation of the logarithm of the requests' sizes.
    """
    chance, answer = Random(seed), tandem.slo(p99_ms=1)(compute)
    due_ns = CLOCK.softgpu_now_ns()
    end_ns = due_ns + seconds * 1e9
    while (due_ns := due_ns + int(chance.expovariate(rate) * 1e9)) < end_ns:
        CLOCK.softgpu_wait_until_ns(ctypes.c_uint64(due_ns))
        answer(gpu, max(1, int(blocks * chance.lognormvariate(0, spread))))
    return CLOCK.softgpu_now_ns()
