"""CUDA arrays and mipmapped arrays: shapes, limits, contents, memory."""

from __future__ import annotations

from cuda.bindings import driver as cu
from gpu import Gpu, address, ok, refused, u32

FORMAT = cu.CUarray_format
FLOAT = FORMAT.CU_AD_FORMAT_FLOAT
LAYERED, SURFACE, CUBEMAP, GATHER = 1, 2, 4, 8  # CUDA_ARRAY3D_*
LIMIT = cu.CUdevice_attribute


def _shape(width, height=0, depth=0, flags=0, form=FLOAT, channels=1):
    shape = cu.CUDA_ARRAY3D_DESCRIPTOR()
    shape.Width, shape.Height, shape.Depth = width, height, depth
    shape.Format, shape.NumChannels, shape.Flags = form, channels, flags
    return shape


def _of(shape) -> tuple[int, ...]:
    return (shape.Width, shape.Height, shape.Depth, shape.NumChannels, shape.Flags)


def every_kind_of_array_tells_its_shape():
    Gpu()
    shapes = [
        _shape(7),
        _shape(7, 5, channels=2),
        _shape(7, 5, 3, channels=4),
        _shape(7, 0, 3, LAYERED),
        _shape(7, 5, 3, LAYERED | SURFACE),
        _shape(8, 8, 6, CUBEMAP),
        _shape(8, 8, 12, CUBEMAP | LAYERED),
        _shape(16, 16, 0, GATHER),
    ]
    for shape in shapes:
        array = ok(cu.cuArray3DCreate(shape))
        told = ok(cu.cuArray3DGetDescriptor(array))
        assert (_of(told), told.Format) == (_of(shape), shape.Format)
        ok(cu.cuArrayDestroy(array))


def every_plain_format_holds_its_elements():
    gpu = Gpu()
    sizes = {1: ("UNSIGNED_INT8", "SIGNED_INT8"), 2: ("UNSIGNED_INT16", "SIGNED_INT16", "HALF")}
    sizes[4] = ("UNSIGNED_INT32", "SIGNED_INT32", "FLOAT")
    line = cu.CUDA_ARRAY_DESCRIPTOR()
    source, back = gpu.word(0x12345678), gpu.word(0)
    for size, names in sizes.items():
        for name in names:
            for channels in (1, 2, 4):
                line.Width, line.Height = 16, 0
                line.Format, line.NumChannels = getattr(FORMAT, f"CU_AD_FORMAT_{name}"), channels
                array = ok(cu.cuArrayCreate(line))
                told = ok(cu.cuArrayGetDescriptor(array))
                assert (told.Width, told.Height, told.NumChannels) == (16, 0, channels)
                element = size * channels
                if element <= 4:
                    ok(cu.cuMemcpyDtoA(array, 15 * element, source, element))
                    ok(cu.cuMemsetD32(back, 0, 1))
                    ok(cu.cuMemcpyAtoD(back, array, 15 * element, element))
                    assert gpu.read(back) == [0x12345678 & ((1 << 8 * element) - 1)]
                past = cu.cuMemcpyDtoA(array, 16 * element, source, element)
                assert refused(past) == "INVALID_VALUE"
                ok(cu.cuArrayDestroy(array))


def shapes_that_cannot_be_are_refused():
    Gpu()
    bad = [
        _shape(0),
        _shape(4, 0, 3),  # three-dimensional, but without a height
        _shape(4, 4, 0, LAYERED),
        _shape(8, 4, 6, CUBEMAP),
        _shape(8, 8, 5, CUBEMAP),
        _shape(8, 8, 7, CUBEMAP | LAYERED),
        _shape(4, channels=3),
        _shape(4, channels=0),
    ]
    for shape in bad:
        assert refused(cu.cuArray3DCreate(shape)) == "INVALID_VALUE", _of(shape)


def extents_reach_as_far_as_the_device_says():
    gpu = Gpu()

    def most(name):
        limit = getattr(LIMIT, f"CU_DEVICE_ATTRIBUTE_MAXIMUM_{name}")
        return ok(cu.cuDeviceGetAttribute(limit, gpu.device))

    def shapes(more):
        yield _shape(most("TEXTURE1D_WIDTH") + more)
        yield _shape(most("TEXTURE2D_WIDTH") + more, 1)
        yield _shape(1, most("TEXTURE2D_HEIGHT") + more)
        yield _shape(most("TEXTURE1D_LAYERED_WIDTH") + more, 0, 1, LAYERED)
        yield _shape(1, 0, most("TEXTURE1D_LAYERED_LAYERS") + more, LAYERED)
        yield _shape(1, 1, most("TEXTURE2D_LAYERED_LAYERS") + more, LAYERED)
        yield _shape(most("SURFACE1D_WIDTH") + more, flags=SURFACE)

    for shape in shapes(0):
        ok(cu.cuArrayDestroy(ok(cu.cuArray3DCreate(shape))))
    for shape in shapes(1):
        assert refused(cu.cuArray3DCreate(shape)) == "INVALID_VALUE", _of(shape)


def arrays_occupy_memory_until_they_or_their_context_are_destroyed():
    gpu = Gpu()
    other = ok(cu.cuCtxCreate(None, 0, gpu.device))
    before, size = ok(cu.cuMemGetInfo())[0], 64 << 20
    array = ok(cu.cuArray3DCreate(_shape(4096, 4096)))
    assert before - ok(cu.cuMemGetInfo())[0] >= size
    ok(cu.cuArrayDestroy(array))
    assert ok(cu.cuMemGetInfo())[0] == before
    ok(cu.cuArray3DCreate(_shape(4096, 4096)))
    ok(cu.cuMipmappedArrayCreate(_shape(4096, 4096), 3))
    ok(cu.cuCtxDestroy(other))
    ok(cu.cuCtxSetCurrent(gpu.context))
    assert ok(cu.cuMemGetInfo())[0] >= before


def an_array_too_big_for_the_device_is_out_of_memory():
    Gpu()
    huge = _shape(16384, 16384, 1024, channels=4)  # 4 TiB
    assert refused(cu.cuArray3DCreate(huge)) == "OUT_OF_MEMORY"
    assert refused(cu.cuMipmappedArrayCreate(huge, 1)) == "OUT_OF_MEMORY"


def levels_of_a_mipmapped_array_halve_and_keep_their_bytes():
    gpu = Gpu()
    mipmapped = ok(cu.cuMipmappedArrayCreate(_shape(16, 4), 99))  # as many levels as possible
    levels = [ok(cu.cuMipmappedArrayGetLevel(mipmapped, level)) for level in range(5)]
    told = [ok(cu.cuArray3DGetDescriptor(level)) for level in levels]
    assert [(t.Width, t.Height) for t in told] == [(16, 4), (8, 2), (4, 1), (2, 1), (1, 1)]
    assert refused(cu.cuMipmappedArrayGetLevel(mipmapped, 5)) == "INVALID_VALUE"
    box = cu.CUDA_MEMCPY2D()
    box.WidthInBytes, box.Height = 4, 1
    for value, level in enumerate(levels):
        box.srcMemoryType, box.srcDevice = cu.CUmemorytype.CU_MEMORYTYPE_DEVICE, gpu.word(value)
        box.dstMemoryType, box.dstArray = cu.CUmemorytype.CU_MEMORYTYPE_ARRAY, level
        ok(cu.cuMemcpy2D(box))
    seen = u32(9)
    for value, level in enumerate(levels):
        box.srcMemoryType, box.srcArray = cu.CUmemorytype.CU_MEMORYTYPE_ARRAY, level
        box.dstMemoryType, box.dstHost = cu.CUmemorytype.CU_MEMORYTYPE_HOST, address(seen)
        ok(cu.cuMemcpy2D(box))
        assert seen[0] == value
    ok(cu.cuMipmappedArrayDestroy(mipmapped))


def layers_are_not_halved():
    Gpu()
    mipmapped = ok(cu.cuMipmappedArrayCreate(_shape(8, 8, 5, LAYERED), 4))
    last = ok(cu.cuArray3DGetDescriptor(ok(cu.cuMipmappedArrayGetLevel(mipmapped, 3))))
    assert (last.Width, last.Height, last.Depth) == (1, 1, 5)
    ok(cu.cuMipmappedArrayDestroy(mipmapped))


def only_sparse_deferred_and_planar_arrays_have_such_properties():
    gpu = Gpu()
    array = ok(cu.cuArray3DCreate(_shape(8, 8)))
    mipmapped = ok(cu.cuMipmappedArrayCreate(_shape(8, 8), 2))
    calls = [
        cu.cuArrayGetPlane(array, 0),
        cu.cuArrayGetSparseProperties(array),
        cu.cuMipmappedArrayGetSparseProperties(mipmapped),
        cu.cuArrayGetMemoryRequirements(array, gpu.device),
        cu.cuMipmappedArrayGetMemoryRequirements(mipmapped, gpu.device),
    ]
    assert {refused(call) for call in calls} == {"INVALID_VALUE"}
    ok(cu.cuArrayDestroy(array))
    ok(cu.cuMipmappedArrayDestroy(mipmapped))


def runs_of_bytes_go_between_arrays_devices_and_the_host():
    gpu = Gpu()
    one, two = (ok(cu.cuArray3DCreate(_shape(8))) for _ in range(2))
    stream, data = ok(cu.cuStreamCreate(1)), ok(cu.cuMemAlloc(32))
    host, back = u32(*range(8)), u32(*[0] * 8)
    ok(cu.cuMemcpyHtoA(one, 0, address(host), 32))
    ok(cu.cuMemcpyAtoA(two, 8, one, 0, 24))
    ok(cu.cuMemcpyAtoD(data, two, 8, 24))
    assert gpu.read(data, 6) == [0, 1, 2, 3, 4, 5]
    ok(cu.cuMemcpyHtoAAsync(one, 4, address(host), 8, stream))
    host[0] = 99  # the source is pageable, so it has been read
    ok(cu.cuMemcpyAtoHAsync(address(back), one, 0, 32, stream))
    ok(cu.cuStreamSynchronize(stream))
    assert back.tolist() == [0, 0, 1, 3, 4, 5, 6, 7]
    ok(cu.cuMemcpyAtoH(address(back), two, 28, 4))
    assert back[0] == 5


def runs_that_do_not_fit_are_refused():
    Gpu()
    line = ok(cu.cuArray3DCreate(_shape(8)))
    wide = ok(cu.cuArray3DCreate(_shape(8, channels=4)))
    host = u32(*[0] * 16)
    bad = [
        cu.cuMemcpyHtoA(line, 28, address(host), 8),
        cu.cuMemcpyAtoH(address(host), line, 36, 4),
        cu.cuMemcpyAtoA(wide, 0, line, 0, 16),  # element sizes differ
        cu.cuMemcpyAtoA(line, 0, line, 16, 20),
    ]
    assert {refused(call) for call in bad} == {"INVALID_VALUE"}
