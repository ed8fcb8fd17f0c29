"""Blocks that wait for each other: cooperative grids and clusters."""

from __future__ import annotations

from cuda.bindings import driver as cu
from gpu import Gpu, NothingToTest, ok, refused

ATTRIBUTE = cu.CUdevice_attribute


def _has(gpu: Gpu, attribute) -> None:
    if not ok(cu.cuDeviceGetAttribute(attribute, gpu.device)):
        raise NothingToTest(f"the device has no {attribute.name}")


def _in_clusters(gpu: Gpu, name: str, out, *, grid, block: int, cluster, shared: int = 0) -> None:
    _has(gpu, ATTRIBUTE.CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH)
    size = cu.CUlaunchAttribute()
    size.id = cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    dim = size.value.clusterDim
    dim.x, dim.y, dim.z = cluster
    config = cu.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = grid
    config.blockDimX, config.blockDimY, config.blockDimZ = block, 1, 1
    config.sharedMemBytes = shared
    config.attrs, config.numAttrs = [size], 1
    values = ((out,), (None,))
    ok(cu.cuLaunchKernelEx(config, gpu.function(name), values, 0))


def the_blocks_of_a_cooperative_grid_meet():
    gpu = Gpu()
    _has(gpu, ATTRIBUTE.CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH)
    blocks, threads = 5, 96
    sums, totals = (ok(cu.cuMemAlloc(4 * blocks)) for _ in range(2))
    function = gpu.function("sum_over_grid")
    arguments = ((sums, totals), (None, None))
    for _ in range(2):
        ok(cu.cuLaunchCooperativeKernel(function, blocks, 1, 1, threads, 1, 1, 0, 0, arguments))
    own = [sum(range(b * threads, (b + 1) * threads)) for b in range(blocks)]
    assert gpu.read(totals, blocks) == [1000 * sum(own) + one for one in own]


def an_ordinary_grid_cannot_meet():
    gpu = Gpu()
    sums = ok(cu.cuMemAlloc(64))
    ok(gpu.launch("sum_over_grid", (sums, sums), (None, None), grid=2, block=32))
    assert refused(cu.cuCtxSynchronize()) == "LAUNCH_FAILED"


def blocks_of_a_cluster_read_each_others_shared_memory():
    gpu = Gpu()
    out = ok(cu.cuMemAlloc(4 * 32 * 8))
    how = {"grid": (8, 1, 1), "block": 32, "cluster": (4, 1, 1), "shared": 128}
    _in_clusters(gpu, "turn_in_cluster", out, **how)
    after = [1, 2, 3, 0, 5, 6, 7, 4]
    assert gpu.read(out, 256) == [107 * b + t for b in after for t in range(32)]


def a_block_is_a_cluster_of_its_own():
    gpu = Gpu()
    _has(gpu, ATTRIBUTE.CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH)
    out = ok(cu.cuMemAlloc(4 * 32 * 2))
    config = (gpu.function("turn_in_cluster"), 2, 1, 1, 32, 1, 1, 128, 0)
    ok(cu.cuLaunchKernel(*config, ((out,), (None,)), 0))
    assert gpu.read(out, 64) == [107 * b + t for b in (0, 1) for t in range(32)]


def the_barrier_of_a_cluster_has_two_halves():
    gpu = Gpu()
    words = ok(cu.cuMemAlloc(16))
    ok(cu.cuMemsetD32(words, 0, 4))
    how = {"grid": (2, 1, 1), "block": 64, "cluster": (2, 1, 1)}
    _in_clusters(gpu, "arrive_and_wait", words, **how)
    assert gpu.read(words, 4) == [3, 6, 2 + 4 + 6, 1 + 2 + 3]
