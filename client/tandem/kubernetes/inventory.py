"""Which slices exist and can be allocated, and who is told. For one event loop."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tandem._results import Gpu
from tandem.errors import NotFoundError
from tandem.kubernetes.slices import shares, slices_of

Say = Callable[[str], None]  # takes a line for the administrator of the node

DRAINING = "it is draining"
GONE = "the daemon no longer knows it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A slice as the kubelet sees it."""

    name: str
    is_healthy: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownGpu:
    """A GPU that the daemon reported, now or earlier."""

    name: str  # as in `tandem gpus`
    uuid: str
    memory_bytes: int  # without what is kept free of all jobs
    trouble: str = ""  # why no container may get it; empty: it may


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """The slices of one GPU that a container gets."""

    gpu: KnownGpu
    slices: int
    memory_bytes: int  # their share of the GPU's


class Inventory:
    """The GPUs of this node.

    A GPU that disappears stays listed as unhealthy: containers may still run on it, and the kubelet
    keeps track of what they have.
    """

    def __init__(self, *, slices: int, say: Say) -> None:
        """`slices` is the number for each GPU."""
        self._slices = slices
        self._say = say
        self._gpus: dict[str, KnownGpu] = {}
        self._silence = ""  # why the daemon is not healthy; empty: it is
        self._changed = asyncio.Condition()

    def grants(self, names: Iterable[str]) -> list[Grant]:
        """What a container with these slices gets, GPU by GPU.

        A GPU that has become unhealthy is not refused: the kubelet has been told, and refusing
        would lose the pod over a difference of a moment.

        Raises:
            NotFoundError: a slice is of a GPU that was never here.
        """
        return [self._grant(uuid, slices) for uuid, slices in shares(names).items()]

    def devices(self) -> list[Device]:
        """All slices of all GPUs."""
        return [
            Device(name=name, is_healthy=not (self._silence or gpu.trouble))
            for gpu in self._gpus.values()
            for name in slices_of(gpu.uuid, self._slices)
        ]

    async def lists(self) -> AsyncIterator[list[Device]]:
        """Yield the devices, now and after each change that the kubelet can see; never ends."""
        told: list[Device] | None = None
        while True:
            async with self._changed:
                while (now := self.devices()) == told:
                    await self._changed.wait()
            told = now
            yield now

    async def update(self, found: Sequence[Gpu]) -> None:
        """Take the present GPUs from the daemon, which is healthy."""
        if self._silence:
            self._say("the daemon is well again")
        self._silence = ""
        gone = {uuid: replace(gpu, trouble=GONE) for uuid, gpu in self._gpus.items()}
        now = gone | {gpu.uuid: _known(gpu) for gpu in found}
        for line in _changes(self._gpus, now):
            self._say(line)
        self._gpus = now
        await self._tell()

    async def lose(self, why: str) -> None:
        """Note that the daemon does not answer or is not healthy."""
        if not self._silence:
            self._say(f"no slice is given out: {why}")
        self._silence = why
        await self._tell()

    def _grant(self, uuid: str, slices: int) -> Grant:
        gpu = self._gpus.get(uuid)
        if gpu is None:
            raise NotFoundError(f"a slice of gpu {uuid!r} is asked for, which is not known here")
        memory_bytes = gpu.memory_bytes * slices // self._slices
        return Grant(gpu=gpu, slices=slices, memory_bytes=memory_bytes)

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()


def _known(gpu: Gpu) -> KnownGpu:
    return KnownGpu(
        name=gpu.name,
        uuid=gpu.uuid,
        memory_bytes=gpu.memory_total_bytes - gpu.memory_reserved_bytes,
        trouble=DRAINING if gpu.draining else "",
    )


def _changes(before: Mapping[str, KnownGpu], now: Mapping[str, KnownGpu]) -> Iterator[str]:
    for uuid, gpu in now.items():
        if uuid in before and before[uuid].trouble == gpu.trouble:
            continue
        state = f"no slice is given out: {gpu.trouble}" if gpu.trouble else "slices are available"
        yield f"gpu {gpu.name} ({uuid}): {state}"
