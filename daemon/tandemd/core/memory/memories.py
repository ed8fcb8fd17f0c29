"""Which GPUs share one memory: compute instances of one GPU instance of MIG.

The GPU indices tell (`edges/gpus.py` makes them), also for GPUs that are gone by now.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

MOST_GPUS = 128  # indices from here on are instances of MIG
COMPUTE_INSTANCES = 8  # at most, in a GPU instance; a GPU has fewer than 16 GPU instances


def has_own_memory(gpu: int) -> bool:
    """Tell whether no other GPU can share its memory."""
    return gpu < MOST_GPUS


def memory_of(gpu: int) -> int:
    """Return a number that is the same for all GPUs that share one memory."""
    return gpu if has_own_memory(gpu) else gpu - gpu % COMPUTE_INSTANCES


def sharing(gpus: Iterable[int], others: Iterable[int]) -> list[int]:
    """Return those of `others` that share memory with one of `gpus`, themselves included."""
    memories = {memory_of(gpu) for gpu in gpus}
    return [gpu for gpu in others if memory_of(gpu) in memories]


def equal_parts(capacity_bytes: Mapping[int, int]) -> dict[int, int]:
    """Return what each GPU has for itself if those that share a memory split it equally."""
    counts = Counter(map(memory_of, capacity_bytes))
    return {gpu: size // counts[memory_of(gpu)] for gpu, size in capacity_bytes.items()}
