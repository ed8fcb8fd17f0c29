"""Torch programs in one process, without graphs."""

from __future__ import annotations

import os

import torch

from bench.gpu.programs import Made
from bench.gpu.programs.models import QUICK, SCALES, make_trainer_step
from bench.gpu.programs.torch_common import begin, model_on, state_of, trainer_of

MODULUS = 1_000_003
ROUNDS = 100  # of three kernels, per iteration of `eager`
BLOCKS = range(4, 26)  # binary logarithms of sizes, in elements of 8 bytes
GIVE_BACK = 8  # iterations after which cached memory is returned to the driver


def eager(device: str) -> Made:
    """Kernels of a few microseconds, one after the other, and a small model."""
    begin(device)
    x = torch.arange(4096, device=device, dtype=torch.int64)
    train, batch = trainer_of(model_on(device)), torch.randn(32, 64, device=device)
    losses: list[float] = []

    def step() -> None:
        nonlocal x
        for number in range(ROUNDS):
            x = (x * 3 + number) % MODULUS
        losses.append(train(batch).item())

    return Made(step=step, state=lambda: state_of(losses, [x]))


def vision(device: str) -> Made:
    """A ResNet-like trainer."""
    return _trainer("vision", device)


def language(device: str) -> Made:
    """A transformer trainer."""
    return _trainer("language", device)


def allocations(device: str) -> Made:
    """A trainer, and blocks of every size, freed out of order and returned to the driver."""
    trained = _trainer("vision", device)
    kept: list[torch.Tensor] = []
    sums: list[float] = []
    count = 0
    sizes = BLOCKS if device == "cuda" else BLOCKS[:12]

    def step() -> None:
        nonlocal count
        trained.step()
        if not count and device == "cuda":
            _require_allocator(os.environ.get("PYTORCH_ALLOC_CONF", ""))
        kept.extend(torch.full((1 << size,), size + count, device=device) for size in sizes)
        sums.append(float(sum(int(block[-1]) for block in kept)))
        del kept[::2]
        if len(kept) > 2 * len(sizes):
            del kept[: len(sizes)]
        count += 1
        if count % GIVE_BACK == 0 and device == "cuda":
            torch.cuda.empty_cache()

    return Made(step=step, state=lambda: [*trained.state(), *state_of(sums, [])])


def _require_allocator(settings: str) -> None:
    """Check that torch uses the allocator settings in its environment.

    Raises:
        RuntimeError: it does not.
    """
    backend = torch.cuda.get_allocator_backend() if settings else ""
    if "cudaMallocAsync" in settings and backend != "cudaMallocAsync":
        raise RuntimeError(f"torch's allocator is {backend!r}, in spite of {settings}")
    if "expandable_segments:True" in settings and not any(
        segment.get("is_expandable") for segment in torch.cuda.memory_snapshot()
    ):
        raise RuntimeError(f"no segment of torch's is expandable, in spite of {settings}")


def streams(device: str) -> Made:
    """Two streams that wait for each other with events, and copies of pinned memory."""
    begin(device)
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    pinned = torch.arange(1 << 20, dtype=torch.int64).pin_memory()
    x = torch.zeros(1 << 20, dtype=torch.int64, device=device)
    torch.cuda.synchronize()
    done = torch.cuda.Event()
    count = 0

    def step() -> None:
        nonlocal count, x
        for _ in range(5):
            with torch.cuda.stream(first):
                x += pinned.to(device, non_blocking=True) * count
                done.record()
            second.wait_event(done)
            with torch.cuda.stream(second):
                x = (x * 2 + 1) % MODULUS
            first.wait_stream(second)
            count += 1
        torch.cuda.synchronize()

    return Made(step=step, state=lambda: state_of([], [x]))


def out_of_memory(device: str) -> Made:
    """Blocks of every size freed out of order, an allocation that is too large, and more blocks."""
    begin(device)
    sums: list[float] = []

    def step() -> None:
        blocks = [torch.full((1 << size,), size, device=device) for size in BLOCKS]
        sums.append(sum(int(block[-1]) for block in blocks))
        del blocks[::2]
        torch.cuda.empty_cache()
        total = torch.cuda.get_device_properties(0).total_memory
        try:
            torch.empty(total * 2, dtype=torch.uint8, device=device)
        except torch.OutOfMemoryError:
            sums.append(-1)
        blocks += [torch.full((1 << size,), size, device=device) for size in BLOCKS]
        sums.append(sum(int(block[-1]) for block in blocks))
        sums.append(torch.cuda.memory_allocated())

    return Made(step=step, state=lambda: state_of(sums, []))


def _trainer(role: str, device: str) -> Made:
    begin(device)
    train, parameters = make_trainer_step(role, QUICK if device == "cuda" else SCALES[device])
    losses: list[float] = []

    def step() -> None:
        losses.append(train())

    return Made(step=step, state=lambda: state_of(losses, parameters()))
