"""Slices: the devices that the kubelet counts. Each is an equal share of one GPU.

`GPU-00112233-4455-6677-8899-aabbccddeeff:3` is the fourth of that GPU. The kubelet knows nothing of
GPUs: what belongs together is known by the names alone, also after a restart of either side.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence

RESOURCE = "tandem.dev/slice"
_MARK = ":"


def slices_of(gpu: str, count: int) -> list[str]:
    """The names of the slices of the GPU with that UUID."""
    return [f"{gpu}{_MARK}{number}" for number in range(count)]


def shares(slices: Iterable[str]) -> Counter[str]:
    """How many of them are of each GPU, by its UUID, in the order of their first."""
    return Counter(map(_gpu_of, slices))


def preferred(available: Collection[str], required: Sequence[str], size: int) -> list[str]:
    """`size` slices for one container: all `required` ones, and others that are available.

    They are of one GPU if one has room for them, of those the fullest: the scheduler of Kubernetes
    counts the slices of a node and not of a GPU, so what a GPU has left must be kept together for
    pods that need many. Else they are of as few GPUs as possible.
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
    """Of a GPU with so many free slices: the smaller the better."""
    return (False, room) if room >= missing else (True, -room)


def _gpu_of(one: str) -> str:
    return one.rpartition(_MARK)[0]
