"""Slices: the devices that the kubelet counts. Each is an equal share of one GPU.

`GPU-00112233-4455-6677-8899-aabbccddeeff:3` is the fourth slice of that GPU. The kubelet knows
nothing of GPUs; only the names tell which slices belong together, even after a restart of either
side.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence

RESOURCE = "tandem.dev/slice"
_MARK = ":"


def slices_of(gpu: str, count: int) -> list[str]:
    """The names of the slices of the GPU with that UUID."""
    return [f"{gpu}{_MARK}{number}" for number in range(count)]


def shares(slices: Iterable[str]) -> Counter[str]:
    """The number of slices on each GPU, by UUID, in the order of first appearance."""
    return Counter(map(_gpu_of, slices))


def preferred(available: Collection[str], required: Sequence[str], size: int) -> list[str]:
    """Choose `size` slices for one container: all `required` ones, and others that are available.

    All are of one GPU if one has room for them, preferably the fullest. The scheduler of Kubernetes
    counts the slices of a node, not of a GPU, so what is left on a GPU must be kept together for
    pods that need many. Otherwise they are of as few GPUs as possible.
    """
    chosen = list(required)
    begun = set(shares(chosen))
    free: dict[str, list[str]] = defaultdict(list)
    for one in sorted(set(available) - set(required)):
        free[_gpu_of(one)].append(one)
    while len(chosen) < size and free:
        missing = size - len(chosen)
        gpu = min(free, key=lambda gpu: (gpu not in begun, _rank(len(free[gpu]), missing)))
        chosen += free.pop(gpu)[:missing]
    return chosen


def _rank(room: int, missing: int) -> tuple[bool, int]:
    """The rank of a GPU with `room` free slices: lower is better."""
    return (False, room) if room >= missing else (True, -room)


def _gpu_of(one: str) -> str:
    return one.rpartition(_MARK)[0]
