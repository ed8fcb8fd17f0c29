"""Batches of copies, prefetches and discards."""

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
        ([any_, any_], [0, 0], stream),  # indices do not ascend
        ([any_, any_], [0, 2], stream),  # index beyond the last copy
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
    word[0] = 5  # a write makes discarded memory valid again
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


def a_batch_is_refused_in_a_capture_which_goes_on():
    gpu = Gpu()
    stream, to, from_ = ok(cu.cuStreamCreate(1)), gpu.word(1), gpu.word(2)
    ok(cu.cuStreamBeginCapture(stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
    answer = _batch((to,), (from_,), [ORDER.CU_MEMCPY_SRC_ACCESS_ORDER_STREAM], [0], stream)
    assert refused(answer) == "STREAM_CAPTURE_UNSUPPORTED"
    gpu.affine(to, 20, 1, stream=stream)
    gpu.run_graph(ok(cu.cuStreamEndCapture(stream)))
    assert gpu.read(to) == [21]


def _box(to, from_, extent, order=ORDER.CU_MEMCPY_SRC_ACCESS_ORDER_STREAM):
    """Return one copy of a batch; its ends are (pointer, row, height) or (array, x, y, z)."""
    op = cu.CUDA_MEMCPY3D_BATCH_OP()
    for end, what in ((op.dst, to), (op.src, from_)):
        if len(what) == 3:
            end.type = cu.CUmemcpy3DOperandType.CU_MEMCPY_OPERAND_TYPE_POINTER
            end.op.ptr.ptr, end.op.ptr.rowLength, end.op.ptr.layerHeight = what
        else:
            end.type = cu.CUmemcpy3DOperandType.CU_MEMCPY_OPERAND_TYPE_ARRAY
            end.op.array.array = what[0]
            offset = end.op.array.offset
            offset.x, offset.y, offset.z = what[1:]
    op.extent.width, op.extent.height, op.extent.depth = extent
    op.srcAccessOrder = order
    return op


def boxes_are_copied_in_batches():
    gpu = Gpu()
    if ok(cu.cuDriverGetVersion()) < 13000:
        raise NothingToTest("the driver is older than the call")
    stream = ok(cu.cuStreamCreate(1))
    numbers = u32(*range(64))  # 4 by 4 by 4 words
    source, back = (ok(cu.cuMemAlloc(256)) for _ in range(2))
    ok(cu.cuMemcpyHtoD(source, address(numbers), 256))
    ok(cu.cuMemsetD8(back, 0, 256))
    shape = cu.CUDA_ARRAY3D_DESCRIPTOR()
    shape.Width = shape.Height = shape.Depth = 4
    shape.Format, shape.NumChannels = cu.CUarray_format.CU_AD_FORMAT_UNSIGNED_INT32, 1
    array = ok(cu.cuArray3DCreate(shape))
    into = _box((array, 0, 0, 0), (source, 4, 0), (4, 4, 4))
    ok(cu.cuMemcpy3DBatchAsync(1, [into], 0, stream))
    # The extent is in the array's elements; between pointers it is in bytes.
    out = _box((back, 0, 0), (array, 1, 2, 3), (2, 2, 1))
    plain = _box((int(back) + 64, 16, 4), (int(source) + 20, 16, 4), (8, 2, 2))
    ok(cu.cuMemcpy3DBatchAsync(2, [out, plain], 0, stream))
    ok(cu.cuStreamSynchronize(stream))
    got = gpu.read(back, 64)
    assert got[:4] == [57, 58, 61, 62]
    assert [got[16:18], got[20:22], got[32:34], got[36:38]] == [[5, 6], [9, 10], [21, 22], [25, 26]]
    for wrong in (
        _box((back, 7, 0), (source, 0, 0), (8, 1, 1)),  # too short rows
        _box((back, 0, 1), (source, 0, 0), (8, 2, 1)),  # too short layers
        _box((back, 0, 0), (source, 0, 0), (8, 0, 1)),
        _box((back, 0, 0), (array, 3, 0, 0), (2, 1, 1)),
        _box((back, 0, 0), (source, 0, 0), (8, 1, 1), ORDER.CU_MEMCPY_SRC_ACCESS_ORDER_INVALID),
    ):
        assert refused(cu.cuMemcpy3DBatchAsync(1, [wrong], 0, stream)) == "INVALID_VALUE"
    assert refused(cu.cuMemcpy3DBatchAsync(1, [plain], 1, stream)) == "INVALID_VALUE"
    assert refused(cu.cuMemcpy3DBatchAsync(1, [plain], 0, 0)) == "INVALID_VALUE"


def one_box_is_copied_as_its_attributes_say():
    gpu = Gpu()
    if ok(cu.cuDriverGetVersion()) < 13020:
        raise NothingToTest("the driver is older than the call")
    stream, word, copy, host = ok(cu.cuStreamCreate(1)), gpu.word(2), gpu.word(0), u32(42)
    gpu.affine(word, 3, 1, stream=stream, slow=True)
    during = ORDER.CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL
    op = _box((copy, 0, 0), (address(host), 0, 0), (4, 1, 1), during)
    ok(cu.cuMemcpy3DWithAttributesAsync(op, 0, stream))
    host[0] = 99
    ok(cu.cuStreamSynchronize(stream))
    assert gpu.read(copy) == [42]
    assert refused(cu.cuMemcpy3DWithAttributesAsync(op, 1, stream)) == "INVALID_VALUE"
