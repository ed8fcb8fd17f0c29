"""Copies, prefetches and discards that come many at a time."""

from __future__ import annotations

import ctypes

from cuda.bindings import driver as cu
from gpu import Gpu, NothingToTest, address, ok, refused, u32

ORDER = cu.CUmemcpySrcAccessOrder
PAGE = 2 << 20


def _attributes(order=ORDER.CU_MEMCPY_SRC_ACCESS_ORDER_STREAM):
    attributes = cu.CUmemcpyAttributes()
    attributes.srcAccessOrder = order
    return attributes


def _batch(to, from_, orders, firsts, stream):
    lists = [list(map(cu.CUdeviceptr, map(int, pointers))) for pointers in (to, from_)]
    attributes = [_attributes(order) for order in orders]
    counts = [4] * len(to)
    return cu.cuMemcpyBatchAsync(
        *lists, counts, len(to), attributes, firsts, len(attributes), stream
    )


def each_copy_of_a_batch_reads_its_source_when_its_attributes_say():
    gpu = Gpu()
    stream, word = ok(cu.cuStreamCreate(1)), gpu.word(2)
    copies, host = [gpu.word(0) for _ in range(2)], u32(42)
    gpu.affine(word, 3, 1, stream=stream, slow=True)
    orders = (
        ORDER.CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
        ORDER.CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL,
    )
    ok(_batch(copies, (word, address(host)), orders, [0, 1], stream))
    host[0] = 99
    ok(cu.cuStreamSynchronize(stream))
    assert [gpu.read(copy) for copy in copies] == [[7], [42]]


def a_batch_is_refused_as_a_whole():
    gpu = Gpu()
    stream, to, from_ = ok(cu.cuStreamCreate(1)), gpu.word(1), gpu.word(2)
    any_, none = ORDER.CU_MEMCPY_SRC_ACCESS_ORDER_ANY, ORDER.CU_MEMCPY_SRC_ACCESS_ORDER_INVALID
    for orders, firsts, where in (
        ([any_], [1], stream),  # the first copy has no attributes
        ([any_, any_], [0, 0], stream),  # they do not ascend
        ([any_, any_], [0, 2], stream),  # beyond the last copy
        ([any_, none], [0, 1], stream),
        ([any_], [0], 0),  # the legacy default stream
    ):
        answer = _batch((to, to), (from_, from_), orders, firsts, where)
        assert refused(answer) == "INVALID_VALUE", (orders, firsts)
    ok(cu.cuStreamSynchronize(stream))
    assert gpu.read(to) == [1]


def managed_memory_is_prefetched_and_discarded_in_batches():
    gpu = Gpu()
    wanted = cu.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS
    if not ok(cu.cuDeviceGetAttribute(wanted, gpu.device)):
        raise NothingToTest("no concurrent managed access")
    stream = ok(cu.cuStreamCreate(1))
    data = [ok(cu.cuMemAllocManaged(PAGE, 1)) for _ in range(3)]
    places = [cu.CUmemLocation(), cu.CUmemLocation()]
    places[0].type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    places[1].type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST
    sizes = [PAGE] * 3
    last = cu.CUmem_range_attribute.CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION
    ok(cu.cuMemPrefetchBatchAsync(data, sizes, 3, places, [0, 2], 2, 0, stream))
    ok(cu.cuStreamSynchronize(stream))
    where = [ok(cu.cuMemRangeGetAttribute(4, last, at, PAGE)) for at in data]
    assert where == [0, 0, -1]
    ok(cu.cuMemDiscardBatchAsync(data[:1], sizes, 1, 0, stream))
    ok(cu.cuMemDiscardAndPrefetchBatchAsync(data[1:], sizes, 2, places[:1], [0], 1, 0, stream))
    ok(cu.cuStreamSynchronize(stream))
    assert ok(cu.cuMemRangeGetAttribute(4, last, data[2], PAGE)) == 0
    word = (ctypes.c_uint * 1).from_address(int(data[0]))
    word[0] = 5  # a write makes discarded memory good again
    gpu.affine(data[0], 2, 1)
    ok(cu.cuCtxSynchronize())
    assert word[0] == 11
    no_stream = cu.cuMemPrefetchBatchAsync(data, sizes, 3, places, [0, 2], 2, 0, 0)
    assert refused(no_stream) == "INVALID_VALUE"
    discard = cu.cuMemDiscardBatchAsync(data, sizes, 3, 1, stream)
    assert refused(discard) == "INVALID_VALUE"


def a_copy_with_attributes_reads_its_source_when_they_say():
    gpu = Gpu()
    if ok(cu.cuDriverGetVersion()) < 13020:
        raise NothingToTest("the driver is older than the call")
    word, copy, late, host = gpu.word(2), gpu.word(0), gpu.word(0), u32(42)
    stream = ok(cu.cuStreamCreate(1))
    gpu.affine(word, 3, 1, stream=stream, slow=True)
    during = _attributes(ORDER.CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL)
    ok(cu.cuMemcpyWithAttributesAsync(copy, address(host), 4, during, stream))
    ok(cu.cuMemcpyWithAttributesAsync(late, word, 4, _attributes(), stream))
    host[0] = 99
    ok(cu.cuStreamSynchronize(stream))
    assert (gpu.read(copy), gpu.read(late)) == ([42], [7])
    none = _attributes(ORDER.CU_MEMCPY_SRC_ACCESS_ORDER_INVALID)
    answer = cu.cuMemcpyWithAttributesAsync(late, word, 4, none, stream)
    assert refused(answer) == "INVALID_VALUE"
