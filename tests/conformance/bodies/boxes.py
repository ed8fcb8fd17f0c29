"""Two- and three-dimensional copies between all kinds of memory."""

from __future__ import annotations

import ctypes
import random

from cuda.bindings import driver as cu
from gpu import Gpu, ok, refused

KIND = cu.CUmemorytype
HOST, DEVICE = KIND.CU_MEMORYTYPE_HOST, KIND.CU_MEMORYTYPE_DEVICE
ARRAY, UNIFIED = KIND.CU_MEMORYTYPE_ARRAY, KIND.CU_MEMORYTYPE_UNIFIED
WIDTH, HEIGHT, DEPTH = 24, 5, 4  # bytes, rows and slices of every block
BYTES = WIDTH * HEIGHT * DEPTH


class _Block:
    """Memory of one kind, and a model of its contents."""

    def __init__(self, name, contents: bytes) -> None:
        self.kind = {"pageable": HOST, "pinned": HOST, "device": DEVICE, "array": ARRAY}.get(
            name, UNIFIED
        )
        self.element, self.model, self.array = 1, bytearray(contents), None
        if name == "array":
            shape = cu.CUDA_ARRAY3D_DESCRIPTOR()
            shape.Format, shape.NumChannels = cu.CUarray_format.CU_AD_FORMAT_UNSIGNED_INT8, 4
            shape.Width, shape.Height, shape.Depth = WIDTH // 4, HEIGHT, DEPTH
            self.element, self.array = 4, ok(cu.cuArray3DCreate(shape))
        elif name == "pageable":
            self.keep = (ctypes.c_char * BYTES)()
            self.at = ctypes.addressof(self.keep)
        elif name in ("pinned", "unified host"):
            self.at = ok(cu.cuMemHostAlloc(BYTES, 0))
        else:
            self.at = int(ok(cu.cuMemAlloc(BYTES)))
        stage = _Memory(contents)
        ok(cu.cuMemcpy3D(_box(stage, self, (0, 0, 0), (0, 0, 0), (WIDTH, HEIGHT, DEPTH))))
        ok(cu.cuCtxSynchronize())

    def bytes(self) -> bytes:
        back = _Memory(bytes(BYTES))
        ok(cu.cuMemcpy3D(_box(self, back, (0, 0, 0), (0, 0, 0), (WIDTH, HEIGHT, DEPTH))))
        return back.keep.raw


class _Memory(_Block):
    """Fresh pageable memory."""

    def __init__(self, contents: bytes) -> None:
        self.kind, self.element, self.array = HOST, 1, None
        self.keep = ctypes.create_string_buffer(contents, BYTES)
        self.at = ctypes.addressof(self.keep)


def _box(source, to, start, goal, extent, box=None):
    """Return the parameters for a copy between blocks."""
    box = box or cu.CUDA_MEMCPY3D()
    box.srcXInBytes, box.srcY, box.srcZ = start
    box.dstXInBytes, box.dstY, box.dstZ = goal
    box.WidthInBytes, box.Height, box.Depth = extent
    box.srcMemoryType, box.dstMemoryType = source.kind, to.kind
    if source.array is not None:
        box.srcArray = source.array
    else:
        box.srcHost, box.srcDevice = source.at, source.at
        box.srcPitch, box.srcHeight = WIDTH, HEIGHT
    if to.array is not None:
        box.dstArray = to.array
    else:
        box.dstHost, box.dstDevice = to.at, to.at
        box.dstPitch, box.dstHeight = WIDTH, HEIGHT
    return box


def _apply(source, to, start, goal, extent) -> None:
    """Apply the same copy to the models."""
    before = bytes(source.model)
    for z in range(extent[2]):
        for y in range(extent[1]):
            a = ((start[2] + z) * HEIGHT + start[1] + y) * WIDTH + start[0]
            b = ((goal[2] + z) * HEIGHT + goal[1] + y) * WIDTH + goal[0]
            to.model[b : b + extent[0]] = before[a : a + extent[0]]


def _blocks(draw) -> list[_Block]:
    names = ["pageable", "pinned", "device", "array", "unified device", "unified host", "array"]
    return [_Block(name, draw.randbytes(BYTES)) for name in names]


def _random_copy(draw, source, to):
    unit = max(source.element, to.element)
    extent, start, goal = [], [], []
    for whole, step in ((WIDTH, unit), (HEIGHT, 1), (DEPTH, 1)):
        size = draw.randint(1, whole // step)
        extent.append(size * step)
        start.append(draw.randint(0, whole // step - size) * step)
        goal.append(draw.randint(0, whole // step - size) * step)
    return start, goal, extent


def random_boxes_do_what_a_model_says():
    gpu, draw = Gpu(), random.Random(11)
    blocks, stream = _blocks(draw), ok(cu.cuStreamCreate(1))

    def peer(box):
        wide = cu.CUDA_MEMCPY3D_PEER()
        for field in ("XInBytes", "Y", "Z", "MemoryType", "Host", "Device", "Pitch", "Height"):
            for end in ("src", "dst"):
                setattr(wide, end + field, getattr(box, end + field))
        wide.srcArray, wide.dstArray = box.srcArray, box.dstArray
        wide.srcContext = wide.dstContext = gpu.context
        wide.WidthInBytes, wide.Height, wide.Depth = box.WidthInBytes, box.Height, box.Depth
        return wide

    calls = [
        lambda box: cu.cuMemcpy3D(box),
        lambda box: cu.cuMemcpy3DAsync(box, stream),
        lambda box: cu.cuMemcpy3DPeer(peer(box)),
        lambda box: cu.cuMemcpy3DPeerAsync(peer(box), stream),
    ]
    for number, source in enumerate(blocks * len(blocks)):
        to = blocks[number // len(blocks)]
        if source is to:
            continue
        where = _random_copy(draw, source, to)
        ok(draw.choice(calls)(_box(source, to, *where)))
        ok(cu.cuCtxSynchronize())
        _apply(source, to, *where)
    for block in blocks:
        assert block.bytes() == bytes(block.model)


def random_rectangles_do_what_a_model_says():
    Gpu()
    draw = random.Random(12)
    blocks, stream = _blocks(draw), ok(cu.cuStreamCreate(1))
    calls = [
        lambda box: cu.cuMemcpy2D(box),
        lambda box: cu.cuMemcpy2DUnaligned(box),
        lambda box: cu.cuMemcpy2DAsync(box, stream),
    ]
    for _ in range(40):
        source, to = draw.sample([block for block in blocks if block.array is None], 2)
        start, goal, extent = _random_copy(draw, source, to)
        start[2] = goal[2] = 0
        extent[2] = 1
        flat = cu.CUDA_MEMCPY2D()
        box = _box(source, to, start, goal, extent)
        for field in ("XInBytes", "Y", "MemoryType", "Host", "Device", "Pitch"):
            for end in ("src", "dst"):
                setattr(flat, end + field, getattr(box, end + field))
        flat.WidthInBytes, flat.Height = box.WidthInBytes, box.Height
        ok(draw.choice(calls)(flat))
        ok(cu.cuCtxSynchronize())
        _apply(source, to, start, goal, extent)
    for block in blocks:
        assert block.bytes() == bytes(block.model)


def boxes_are_captured_and_are_nodes_of_graphs():
    gpu, draw = Gpu(), random.Random(13)
    blocks = [block for block in _blocks(draw) if block.kind != HOST]
    stream, mode = ok(cu.cuStreamCreate(1)), cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    copies = []
    for _ in range(12):
        source, to = draw.sample(blocks, 2)
        copies.append((source, to, *_random_copy(draw, source, to)))
    ok(cu.cuStreamBeginCapture(stream, mode))
    for copy in copies[:6]:
        ok(cu.cuMemcpy3DAsync(_box(*copy), stream))
    graph = ok(cu.cuStreamEndCapture(stream))
    nodes = ok(cu.cuGraphGetNodes(graph, 6))[0]
    kind = cu.CUgraphNodeType.CU_GRAPH_NODE_TYPE_MEMCPY
    assert {ok(cu.cuGraphNodeGetType(node)) for node in nodes} == {kind}
    last = nodes[-1:]
    for copy in copies[6:]:
        told = _box(*copy)
        last = [ok(cu.cuGraphAddMemcpyNode(graph, last, 1, told, gpu.context))]
        read = ok(cu.cuGraphMemcpyNodeGetParams(last[0]))
        assert (read.srcZ, read.dstY, read.Depth) == (told.srcZ, told.dstY, told.Depth)
    gpu.run_graph(graph, stream)
    for copy in copies:
        _apply(*copy)
    for block in blocks:
        assert block.bytes() == bytes(block.model)


def a_captured_copy_of_an_array_tells_where_it_was():
    Gpu()
    array, data = _Block("array", bytes(BYTES)), _Block("device", bytes(BYTES))
    stream, mode = ok(cu.cuStreamCreate(1)), cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    ok(cu.cuStreamBeginCapture(stream, mode))
    ok(cu.cuMemcpy3DAsync(_box(data, array, (0, 0, 0), (8, 2, 1), (12, 3, 2)), stream))
    graph = ok(cu.cuStreamEndCapture(stream))
    told = ok(cu.cuGraphMemcpyNodeGetParams(ok(cu.cuGraphGetNodes(graph, 1))[0][0]))
    assert (told.dstMemoryType, int(told.dstArray)) == (ARRAY, int(array.array))
    assert (told.dstXInBytes, told.dstY, told.dstZ) == (8, 2, 1)
    assert (told.WidthInBytes, told.Height, told.Depth) == (12, 3, 2)


def boxes_that_do_not_fit_are_refused():
    Gpu()
    array, data = _Block("array", bytes(BYTES)), _Block("device", bytes(BYTES))
    zero, small = (0, 0, 0), (8, 2, 2)

    def bad(source=data, to=array, start=zero, goal=zero, extent=small, **changes):
        box = _box(source, to, start, goal, extent)
        for name, value in changes.items():
            setattr(box, name, value)
        return refused(cu.cuMemcpy3D(box))

    errors = {
        bad(srcPitch=7),  # less than the width
        bad(start=(4, 0, 0), srcPitch=11),
        bad(srcPitch=1 << 31),  # more than the device allows
        bad(srcHeight=1),
        bad(start=(0, 2, 0), srcHeight=3),
        bad(goal=(20, 0, 0)),  # beyond the array, in each dimension
        bad(goal=(0, 4, 0)),
        bad(goal=(0, 0, 3)),
        bad(srcLOD=1),
    }
    assert errors == {"INVALID_VALUE"}
    assert array.bytes() == data.bytes() == bytes(BYTES)


def a_pageable_box_may_change_after_the_call():
    gpu, contents = Gpu(), random.Random(14).randbytes(BYTES)
    stream, word = ok(cu.cuStreamCreate(1)), gpu.word(0)
    source, array = _Memory(contents), _Block("array", bytes(BYTES))
    gpu.affine(word, 1, 1, stream=stream, slow=True)
    whole = (WIDTH, HEIGHT, DEPTH)
    ok(cu.cuMemcpy3DAsync(_box(source, array, (0, 0, 0), (0, 0, 0), whole), stream))
    ctypes.memset(source.at, 0, BYTES)
    ok(cu.cuStreamSynchronize(stream))
    assert array.bytes() == contents


def a_parameter_of_an_executable_graph_becomes_another_array():
    gpu = Gpu()
    shape = cu.CUDA_ARRAY3D_DESCRIPTOR()
    shape.Format, shape.NumChannels = cu.CUarray_format.CU_AD_FORMAT_UNSIGNED_INT8, 4
    shape.Width, shape.Height, shape.Depth = 4, 0, 0
    one, two = (ok(cu.cuArray3DCreate(shape)) for _ in range(2))
    box = cu.CUDA_MEMCPY3D()
    box.srcMemoryType, box.srcDevice = DEVICE, gpu.word(77)
    box.dstMemoryType, box.dstArray = ARRAY, one
    box.WidthInBytes, box.Height, box.Depth = 4, 1, 1
    graph = ok(cu.cuGraphCreate(0))
    node = ok(cu.cuGraphAddMemcpyNode(graph, [], 0, box, gpu.context))
    executable = ok(cu.cuGraphInstantiate(graph, 0))
    box.dstArray = two
    ok(cu.cuGraphExecMemcpyNodeSetParams(executable, node, box, gpu.context))
    ok(cu.cuGraphLaunch(executable, 0))
    back = gpu.word(0)
    ok(cu.cuMemcpyAtoD(back, two, 0, 4))
    assert gpu.read(back) == [77]


def rows_of_short_values_are_set():
    gpu = Gpu()
    data = ok(cu.cuMemAlloc(64))
    ok(cu.cuMemsetD8(data, 0, 64))
    stream = ok(cu.cuStreamCreate(0))
    ok(cu.cuMemsetD2D16(data, 16, 0x1234, 2, 3))
    ok(cu.cuMemsetD2D16Async(int(data) + 8, 16, 0xABCD, 2, 2, stream))
    ok(cu.cuStreamSynchronize(stream))
    row, half = [0x12341234, 0, 0xABCDABCD, 0], [0x12341234, 0, 0, 0]
    assert gpu.read(data, 16) == [*row, *row, *half, 0, 0, 0, 0]
    assert refused(cu.cuMemsetD2D16(int(data) + 1, 16, 0, 2, 2)) == "INVALID_VALUE"
    assert refused(cu.cuMemsetD2D16(data, 2, 0, 2, 2)) == "INVALID_VALUE"
