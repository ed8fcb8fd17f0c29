"""Torch programs in several processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing import get_context
from torch.utils.data import DataLoader, Dataset

from bench.gpu.programs import Made
from bench.gpu.programs.torch_common import begin, model_on, state_of, trainer_of

PATIENCE_S = 60.0
BATCHES = 4  # per iteration


class Numbers(Dataset[Tensor]):
    """Items that must be made in a process other than this one."""

    def __init__(self) -> None:
        self.parent = os.getpid()

    def __len__(self) -> int:
        return 1 << 24

    def __getitem__(self, index: int) -> Tensor:
        if os.getpid() == self.parent:
            sys.exit("an item was made in the process that trains")
        return torch.sin(torch.arange(64) + float(index))


def loader_fork(device: str) -> Made:
    """A data loader whose workers are forked from a process with a CUDA context."""
    return _loader(device, "fork")


def loader_spawn(device: str) -> Made:
    """A data loader whose workers are spawned as new processes."""
    return _loader(device, "spawn")


def between_processes(device: str) -> Made:
    """A child that works in this process's memory, on a GPU by CUDA IPC."""
    begin(device)
    context = get_context("spawn")
    inbox, outbox = context.Queue(), context.Queue()
    child = context.Process(target=double_what_comes, args=(inbox, outbox), daemon=True)
    child.start()
    sums: list[float] = []

    def step() -> None:
        tensor = torch.arange(1000, device=device)
        inbox.put(tensor)
        outbox.get(timeout=PATIENCE_S)
        sums.append(tensor.sum().item())

    def close() -> None:
        inbox.put(None)
        child.join(timeout=PATIENCE_S)
        if child.exitcode != 0:
            sys.exit(f"the other process ended with {child.exitcode}")

    return Made(step=step, state=lambda: state_of(sums, []), close=close)


def double_what_comes(inbox: Any, outbox: Any) -> None:  # noqa: ANN401  queues of torch
    """Double each tensor that arrives; the body of the child."""
    while (tensor := inbox.get()) is not None:
        tensor *= 2  # in the sender's memory
        if tensor.is_cuda:
            torch.cuda.synchronize()
        del tensor
        outbox.put("done")


def _loader(device: str, start: str) -> Made:
    begin(device)
    model = model_on(device)
    train = trainer_of(model)
    losses = [train(torch.ones(16, 64, device=device)).item()]  # creates the context
    pin = device == "cuda"
    batches: Iterator[Tensor] = iter(
        DataLoader(
            Numbers(), batch_size=16, num_workers=2, multiprocessing_context=start, pin_memory=pin
        )
    )

    def step() -> None:
        some = (next(batches).to(device, non_blocking=pin) for _ in range(BATCHES))
        losses.extend(train(batch).item() for batch in some)

    return Made(step=step, state=lambda: state_of(losses, model.parameters()))
