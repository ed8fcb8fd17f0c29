"""Which GPUs have one memory: compute instances of one GPU instance of MIG.

Their indices say it (`edges/gpus.py` makes them), and so do those of GPUs that are gone by now.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

MOST_GPUS = 128  # indices from here on are instances of MIG
COMPUTE_INSTANCES = 8  # of a GPU instance at most; of these there are less than 16 on a GPU


def has_own_memory(gpu: int) -> bool:
    """No other GPU can have it, too."""
    return gpu < MOST_GPUS


def memory_of(gpu: int) -> int:
    """The same for all that have one memory."""
    return gpu if has_own_memory(gpu) else gpu - gpu % COMPUTE_INSTANCES


def sharing(gpus: Iterable[int], others: Iterable[int]) -> list[int]:
    """Those of `others` whose memory is that of one of `gpus`: these themselves, above all."""
    memories = {memory_of(gpu) for gpu in gpus}
    return [gpu for gpu in others if memory_of(gpu) in memories]


def equal_parts(capacity_bytes: Mapping[int, int]) -> dict[int, int]:
    """What each GPU has for itself, if those that have one memory share it alike."""
    counts = Counter(map(memory_of, capacity_bytes))
    return {gpu: size // counts[memory_of(gpu)] for gpu, size in capacity_bytes.items()}
