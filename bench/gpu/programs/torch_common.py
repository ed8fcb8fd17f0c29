"""Shared by the torch programs: repeatable results, a small model, the bytes of tensors."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from bench.gpu.programs import SEED


def begin(device: str) -> None:
    """Make results the same in every run. Each program must call this first."""
    torch.manual_seed(SEED)
    torch.use_deterministic_algorithms(mode=True)
    torch.backends.cudnn.benchmark = False
    if device == "cpu":
        torch.set_num_threads(1)


def model_on(device: str) -> nn.Module:
    """A network whose kernels are short."""
    layers = [nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 8)]
    return nn.Sequential(*layers).to(device)


def trainer_of(model: nn.Module) -> Callable[[Tensor], Tensor]:
    """Return a function that trains on one batch and returns the loss."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)

    def train(x: Tensor) -> Tensor:
        optimizer.zero_grad(set_to_none=False)
        loss: Tensor = model(x).square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss.detach()

    return train


def state_of(losses: Iterable[float], tensors: Iterable[Tensor]) -> list[bytes]:
    """The bytes that a digest is made of."""
    numbers = list(losses)
    found = [struct.pack(f"<{len(numbers)}d", *numbers)]
    found += [t.detach().cpu().contiguous().numpy().tobytes() for t in tensors]
    return found
