"""Torch programs that launch CUDA graphs."""

from __future__ import annotations

import torch

from bench.gpu.programs import Made
from bench.gpu.programs.torch_common import begin, model_on, state_of, trainer_of

REPLAYS = 50  # per iteration


def graph(device: str) -> Made:
    """A training step, captured once and launched again and again."""
    begin(device)
    model, x = model_on(device), torch.randn(32, 64, device=device)
    train = trainer_of(model)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            train(x)
    torch.cuda.current_stream().wait_stream(side)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        loss = train(x)
    losses: list[float] = []

    def step() -> None:
        for _ in range(REPLAYS):
            captured.replay()
        losses.append(loss.item())

    return Made(step=step, state=lambda: state_of(losses, model.parameters()))


def compiled(device: str) -> Made:
    """`torch.compile(mode="reduce-overhead")`, which makes Triton kernels and graphs."""
    begin(device)
    torch._dynamo.reset()  # noqa: SLF001  the same again, as in a new process
    model, x = model_on(device), torch.randn(32, 64, device=device)
    faster = torch.compile(model, mode="reduce-overhead")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    losses: list[float] = []

    def step() -> None:
        for _ in range(10):
            optimizer.zero_grad(set_to_none=True)
            loss = faster(x).square().mean()
            loss.backward()
            optimizer.step()
        losses.append(loss.item())

    return Made(step=step, state=lambda: state_of(losses, model.parameters()))
