"""Copies of boxes and arrays with arguments about which the driver reference promises nothing."""

ARRAYS = """
def shape(width, height=0, depth=0, flags=0, form=cu.CUarray_format.CU_AD_FORMAT_FLOAT):
    wanted = cu.CUDA_ARRAY3D_DESCRIPTOR()
    wanted.Width, wanted.Height, wanted.Depth, wanted.Flags = width, height, depth, flags
    wanted.Format, wanted.NumChannels = form, 1
    return wanted

def box(source, to, bytes, height=1, depth=1):
    made = cu.CUDA_MEMCPY3D()
    kinds = cu.CUmemorytype
    kind = {"host": kinds.CU_MEMORYTYPE_HOST, "device": kinds.CU_MEMORYTYPE_DEVICE,
            "unified": kinds.CU_MEMORYTYPE_UNIFIED, "array": kinds.CU_MEMORYTYPE_ARRAY}
    made.srcMemoryType, made.dstMemoryType = kind[source[0]], kind[to[0]]
    field = {"host": "Host", "device": "Device", "unified": "Device", "array": "Array"}
    setattr(made, "src" + field[source[0]], source[1])
    setattr(made, "dst" + field[to[0]], to[1])
    made.WidthInBytes, made.Height, made.Depth = bytes, height, depth
    return made

gpu = Gpu()
data = ok(cu.cuMemAlloc(64))
"""


def test_boxes_beyond_their_memory_and_beyond_all_numbers_are_refused(gpu):
    gpu.run(
        ARRAYS
        + """
def bad(source, to, *extent, **changes):
    made = box(source, to, *extent)
    for name, value in changes.items():
        setattr(made, name, value)
    return refused(cu.cuMemcpy3D(made))

device, host = ("device", data), ("host", address(u32(*range(64))))
huge = 2**63 + 8
assert {
    bad(device, host, 68),
    bad(device, host, 16, 5),
    bad(host, device, 16, 2, 3, srcHeight=2, dstHeight=2),
    bad(host, ("unified", int(data) + 32), 36),
    bad(device, host, 4, srcXInBytes=2**64 - 4),
    bad(device, host, 4, srcY=huge, srcPitch=64),
    bad(device, host, 4, srcZ=huge, srcPitch=64, srcHeight=huge),
    bad(host, device, huge, 2, srcPitch=0),
    bad(host, device, 4, huge, 4, srcHeight=huge, dstHeight=huge),
    bad(host, device, 4, 2, 2),  # how high a slice is has to be said
    bad(("host", 0), device, 4),
} == {"INVALID_VALUE"}
"""
    )


def test_pageable_memory_that_is_not_there_is_refused_by_an_asynchronous_copy(gpu):
    gpu.run(
        ARRAYS
        + """
stream = ok(cu.cuStreamCreate(0))
made = box(("unified", 4096), ("device", data), 64)
assert refused(cu.cuMemcpy3DAsync(made, stream)) == "INVALID_VALUE"
ok(cu.cuCtxSynchronize())
"""
    )


def test_stale_and_foreign_arrays_are_refused(gpu):
    gpu.run(
        ARRAYS
        + """
array, mipmapped = ok(cu.cuArray3DCreate(shape(8))), ok(cu.cuMipmappedArrayCreate(shape(8), 2))
level = ok(cu.cuMipmappedArrayGetLevel(mipmapped, 1))
assert refused(cu.cuArrayDestroy(level)) == "INVALID_HANDLE"
ok(cu.cuArrayDestroy(array))
ok(cu.cuMipmappedArrayDestroy(mipmapped))
for stale in (array, level, cu.CUarray(0), cu.CUarray(int(gpu.context))):
    assert refused(cu.cuArrayDestroy(stale)) == "INVALID_HANDLE"
    assert refused(cu.cuArray3DGetDescriptor(stale)) == "INVALID_HANDLE"
    assert refused(cu.cuArrayGetDescriptor(stale)) == "INVALID_HANDLE"
    assert refused(cu.cuArrayGetPlane(stale, 0)) == "INVALID_HANDLE"
    assert refused(cu.cuMemcpyDtoA(stale, 0, data, 4)) == "INVALID_VALUE"
    made = box(("array", stale), ("device", data), 4)
    assert refused(cu.cuMemcpy3D(made)) == "INVALID_VALUE"
    graph = ok(cu.cuGraphCreate(0))
    assert refused(cu.cuGraphAddMemcpyNode(graph, [], 0, made, gpu.context)) == "INVALID_VALUE"
assert refused(cu.cuMipmappedArrayDestroy(mipmapped)) == "INVALID_HANDLE"
assert refused(cu.cuMipmappedArrayGetLevel(mipmapped, 0)) == "INVALID_HANDLE"
peer = cu.CUDA_MEMCPY3D_PEER()
peer.srcMemoryType = peer.dstMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_DEVICE
peer.srcDevice = peer.dstDevice = data
peer.WidthInBytes, peer.Height, peer.Depth = 4, 1, 1
peer.srcContext = gpu.context
assert refused(cu.cuMemcpy3DPeer(peer)) == "INVALID_CONTEXT"
"""
    )


def test_a_graph_whose_array_is_gone_cannot_be_changed_to_another(gpu):
    gpu.run(
        ARRAYS
        + """
one, two = (ok(cu.cuArray3DCreate(shape(8))) for _ in range(2))
graph = ok(cu.cuGraphCreate(0))
made = box(("device", data), ("array", one), 4)
node = ok(cu.cuGraphAddMemcpyNode(graph, [], 0, made, gpu.context))
executable = ok(cu.cuGraphInstantiate(graph, 0))
def change(to):
    made = box(("device", data), to, 4)
    return cu.cuGraphExecMemcpyNodeSetParams(executable, node, made, gpu.context)
ok(change(("array", two)))
assert refused(change(("device", ok(cu.cuMemAlloc(4))))) == "INVALID_VALUE"
ok(cu.cuArrayDestroy(two))
assert refused(change(("array", one))) == "INVALID_VALUE"
"""
    )


def test_what_only_other_devices_have_is_not_supported(gpu):
    gpu.run(
        ARRAYS
        + """
formats = cu.CUarray_format
for form in (formats.CU_AD_FORMAT_NV12, formats.CU_AD_FORMAT_BC1_UNORM):
    assert refused(cu.cuArray3DCreate(shape(8, 8, form=form))) == "NOT_SUPPORTED"
for flag in (0x10, 0x20, 0x40, 0x80, 0x100):
    assert refused(cu.cuArray3DCreate(shape(8, 8, flags=flag))) == "NOT_SUPPORTED"
assert refused(cu.cuArray3DCreate(shape(8, 8, flags=1 << 20))) == "INVALID_VALUE"
"""
    )


def test_the_timeline_shows_one_copy_of_all_bytes(gpu):
    gpu.run(
        ARRAYS
        + """
array = ok(cu.cuArray3DCreate(shape(4, 4, 4)))
host = u32(*range(64))
made = box(("host", address(host)), ("array", array), 8, 3, 2)
made.srcPitch, made.srcHeight = 16, 4
ok(cu.cuMemcpy3D(made))
"""
    )
    assert [row["bytes"] for row in gpu.timeline("copy_htod")] == [48]
