"""A program of Triton, on tensors of torch."""

# No `from __future__ import annotations`: Triton evaluates its kernels' annotations.
import torch
import triton
import triton.language as tl

from bench.gpu.programs import Made
from bench.gpu.programs.torch_common import begin, state_of

SIZE, BLOCK = 1 << 20, 1024
ROUNDS = 100  # per iteration


@triton.jit
def add_and_halve(x, y, out, n, block: tl.constexpr):  # noqa: ANN001, ANN201, D103
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < n
    left = tl.load(x + at, mask=inside)
    right = tl.load(y + at, mask=inside)
    tl.store(out + at, (left + right) * 0.5, mask=inside)


def compute(device: str) -> Made:
    """A kernel of our own, launched again and again."""
    begin(device)
    x, y = torch.randn(SIZE, device=device), torch.randn(SIZE, device=device)

    def step() -> None:
        for _ in range(ROUNDS):
            add_and_halve[(triton.cdiv(SIZE, BLOCK),)](x, y, x, SIZE, block=BLOCK)
        torch.cuda.synchronize()

    return Made(step=step, state=lambda: state_of([], [x]))
