"""Random work on memory pools of the software GPU, against a model of what is guaranteed.

python tests/property/pool_model.py      # in the environment of the software GPU
"""

from __future__ import annotations

import array
from dataclasses import dataclass

from cuda.bindings import driver as cu
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

ALIGNMENT = 512
GRANULE = 2 << 20
ATTRIBUTE = cu.CUmemPool_attribute
# Few sizes (in words), so that one stream often frees what another could use.
SIZES = st.sampled_from([1, 1000, 300_000, 400_000])
STREAMS = st.integers(0, 3)
ACTS = [
    *["allocate"] * 4,
    *["free_after_more_work"] * 3,
    "free_at_once",
    *["order"] * 2,
    "synchronise",
    "trim",
    "look",
]
FLAGS = ("FOLLOW_EVENT_DEPENDENCIES", "ALLOW_OPPORTUNISTIC", "ALLOW_INTERNAL_DEPENDENCIES")


def ok(result):
    status, *values = result
    assert status == cu.CUresult.CUDA_SUCCESS, status
    return values[0] if values else None


@dataclass
class Allocation:
    at: int
    words: int
    stream: int
    value: int


class Pools(RuleBasedStateMachine):
    """Allocations never overlap, keep what was written into them, and are counted."""

    @initialize(
        flags=st.tuples(*[st.booleans()] * 3),
        threshold=st.sampled_from([0, 4 * GRANULE]),
        most=st.sampled_from([0, GRANULE, 2 * GRANULE]),
    )
    def start(self, flags, threshold, most):
        ok(cu.cuCtxSynchronize())
        self.free_at_start = ok(cu.cuMemGetInfo())
        props = cu.CUmemPoolProps()
        props.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        props.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        props.maxSize = most
        self.most = most
        self.pool = ok(cu.cuMemPoolCreate(props))
        for name, on in zip(FLAGS, flags, strict=True):
            which = getattr(ATTRIBUTE, f"CU_MEMPOOL_ATTR_REUSE_{name}")
            ok(cu.cuMemPoolSetAttribute(self.pool, which, int(on)))
        which = ATTRIBUTE.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
        ok(cu.cuMemPoolSetAttribute(self.pool, which, cu.cuuint64_t(threshold)))
        self.threshold = threshold
        # Two that synchronise with the legacy stream, one that does not, and the legacy stream
        # itself.
        self.streams = [ok(cu.cuStreamCreate(flag)) for flag in (0, 0, 1)] + [cu.CUstream(0)]
        self.event = ok(cu.cuEventCreate(2))
        self.live: list[Allocation] = []
        self.values = 0

    def get(self, name):
        which = getattr(ATTRIBUTE, f"CU_MEMPOOL_ATTR_{name}")
        return int(ok(cu.cuMemPoolGetAttribute(self.pool, which)))

    # One rule for all acts: hypothesis leaves some rules out of a run, and without memory no test.
    @rule(data=st.data())
    def act(self, data):
        act = data.draw(st.sampled_from(ACTS))
        if act.startswith("free") and not self.live:
            act = "allocate"
        getattr(self, act)(data.draw)

    def allocate(self, draw):
        words, stream = draw(SIZES), draw(STREAMS)
        status, at = cu.cuMemAllocFromPoolAsync(4 * words, self.pool, self.streams[stream])
        if self.most and status == cu.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
            return
        assert status == cu.CUresult.CUDA_SUCCESS
        at = int(at)
        assert at % ALIGNMENT == 0
        for other in self.live:
            assert at >= other.at + 4 * other.words or other.at >= at + 4 * words
        self.values += 1
        ok(cu.cuMemsetD32Async(at, self.values, words, self.streams[stream]))
        self.live.append(Allocation(at, words, stream, self.values))

    def free_after_more_work(self, draw):
        """Frees after a pending write, so that whoever gets the memory too early is overwritten."""
        gone = self.live.pop(draw(st.integers(0, len(self.live) - 1)))
        stream = self.streams[gone.stream]
        for value in (1, 2):
            ok(cu.cuMemsetD32Async(gone.at, 0xDEAD0000 + value, gone.words, stream))
        ok(cu.cuMemFreeAsync(gone.at, stream))
        assert cu.cuMemFreeAsync(gone.at, stream)[0] == cu.CUresult.CUDA_ERROR_INVALID_VALUE

    def free_at_once(self, draw):
        gone = self.live.pop(draw(st.integers(0, len(self.live) - 1)))
        ok(cu.cuStreamSynchronize(self.streams[gone.stream]))
        ok(cu.cuMemFree(gone.at))

    def order(self, draw):
        first, second = draw(STREAMS), draw(STREAMS)
        ok(cu.cuEventRecord(self.event, self.streams[first]))
        ok(cu.cuStreamWaitEvent(self.streams[second], self.event, 0))

    def synchronise(self, draw):
        ok(cu.cuStreamSynchronize(self.streams[draw(STREAMS)]))

    def trim(self, draw):
        keep = draw(st.sampled_from([0, GRANULE, 16 * GRANULE]))
        before = self.get("RESERVED_MEM_CURRENT")
        ok(cu.cuMemPoolTrimTo(self.pool, keep))
        assert min(before, keep) <= self.get("RESERVED_MEM_CURRENT") <= before

    def look(self, _draw=None):
        for one in self.live:
            host = array.array("I", [0] * one.words)
            ok(cu.cuStreamSynchronize(self.streams[one.stream]))
            ok(cu.cuMemcpyDtoH(host.buffer_info()[0], one.at, 4 * one.words))
            assert host.count(one.value) == one.words

    @invariant()
    def amounts_are_right(self):
        used = sum(-(-4 * one.words // ALIGNMENT) * ALIGNMENT for one in self.live)
        reserved = self.get("RESERVED_MEM_CURRENT")
        assert self.get("USED_MEM_CURRENT") == used <= reserved
        assert reserved % GRANULE == 0
        assert not self.most or reserved <= self.most
        assert self.get("RESERVED_MEM_HIGH") >= reserved
        assert self.free_at_start - ok(cu.cuMemGetInfo()) == reserved

    def teardown(self):
        if not hasattr(self, "live"):
            return
        self.look()
        for one in self.live:
            ok(cu.cuMemFreeAsync(one.at, self.streams[one.stream]))
        ok(cu.cuCtxSynchronize())
        assert self.get("USED_MEM_CURRENT") == 0
        assert self.get("RESERVED_MEM_CURRENT") <= self.threshold
        ok(cu.cuMemPoolDestroy(self.pool))
        assert ok(cu.cuMemGetInfo()) == self.free_at_start
        ok(cu.cuEventDestroy(self.event))
        for stream in self.streams[:3]:
            ok(cu.cuStreamDestroy(stream))


if __name__ == "__main__":
    ok(cu.cuInit(0))
    ok(cu.cuCtxSetCurrent(ok(cu.cuDevicePrimaryCtxRetain(0))))
    run_state_machine_as_test(
        Pools,
        settings=settings(
            max_examples=60,
            stateful_step_count=30,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
