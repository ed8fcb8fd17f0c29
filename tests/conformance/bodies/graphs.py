"""Graphs: built node by node, instantiated, launched, updated."""

from __future__ import annotations

import ctypes
import tempfile
import threading
from pathlib import Path

from cuda.bindings import driver as cu
from gpu import Gpu, address, ok, outside, refused, u32

KIND = cu.CUgraphNodeType
RESULT = cu.CUgraphExecUpdateResult
NON_BLOCKING = 1


def _graph():
    return ok(cu.cuGraphCreate(0))


def _ints(handles) -> list[int]:
    return [int(handle) for handle in handles]


def _nodes(graph):
    return ok(cu.cuGraphGetNodes(graph, ok(cu.cuGraphGetNodes(graph))[1]))[0]


def _memset(pointer, value, width=1):
    params = cu.CUDA_MEMSET_NODE_PARAMS()
    params.dst, params.value, params.elementSize = pointer, value, 4
    params.width, params.height = width, 1
    return params


def _copy(to, source, size):
    params = cu.CUDA_MEMCPY3D()
    device = cu.CUmemorytype.CU_MEMORYTYPE_DEVICE
    params.srcMemoryType, params.srcDevice = device, source
    params.dstMemoryType, params.dstDevice = device, to
    params.WidthInBytes, params.Height, params.Depth = size, 1, 1
    return params


def _edges(graph) -> set[tuple[int, int]]:
    count = ok(cu.cuGraphGetEdges(graph))[-1]
    sources, targets, *_ = ok(cu.cuGraphGetEdges(graph, count))
    return set(zip(_ints(sources[:count]), _ints(targets[:count]), strict=True))


def _link(change, graph, sources, targets):
    """Add or remove edges; version 13 of the bindings takes edge data, version 12 does not."""
    data = [None] if cu.CUDA_VERSION >= 13000 else []
    return change(graph, sources, targets, *data, len(sources))


def work_of_all_kinds_runs_in_the_order_of_the_edges():
    gpu = Gpu()
    graph, word, other, seen = _graph(), gpu.word(0), gpu.word(0), []
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(seen.append)
    host = cu.CUDA_HOST_NODE_PARAMS()
    host.fn, host.userData = ctypes.cast(call, ctypes.c_void_p).value, 42
    fill = ok(cu.cuGraphAddMemsetNode(graph, [], 0, _memset(word, 5), gpu.context))
    twice = gpu.add_kernel(graph, [fill], word, 2, 0, slow=True)
    nothing = ok(cu.cuGraphAddEmptyNode(graph, [twice], 1))
    copy = ok(cu.cuGraphAddMemcpyNode(graph, [nothing], 1, _copy(other, word, 4), gpu.context))
    last = ok(cu.cuGraphAddHostNode(graph, [copy], 1, host))
    assert _ints(_nodes(graph)) == _ints([fill, twice, nothing, copy, last])
    assert _ints(ok(cu.cuGraphGetRootNodes(graph, 1))[0]) == [int(fill)]
    assert _edges(graph) == {
        (int(a), int(b))
        for a, b in ((fill, twice), (twice, nothing), (nothing, copy), (copy, last))
    }
    gpu.run_graph(graph)
    assert (gpu.read(other), seen) == ([10], [42])


def branches_meet_and_nodes_can_be_rewired_and_removed():
    gpu = Gpu()
    graph, a, b = _graph(), gpu.word(1), gpu.word(1)
    first = gpu.add_kernel(graph, [], a, 3, 0, slow=True)
    second = gpu.add_kernel(graph, [], b, 5, 0)
    join = ok(cu.cuGraphAddMemcpyNode(graph, [first], 1, _copy(b, a, 4), gpu.context))
    ok(_link(cu.cuGraphAddDependencies, graph, [second], [join]))
    assert refused(_link(cu.cuGraphAddDependencies, graph, [second], [join])) == "INVALID_VALUE"
    gpu.run_graph(graph)
    assert gpu.read(b) == [3]
    ok(_link(cu.cuGraphRemoveDependencies, graph, [first], [join]))
    assert refused(_link(cu.cuGraphRemoveDependencies, graph, [first], [join])) == "INVALID_VALUE"
    assert _edges(graph) == {(int(second), int(join))}
    ok(cu.cuGraphDestroyNode(first))
    assert len(_nodes(graph)) == 2
    gpu.run_graph(graph)
    assert gpu.read(a) + gpu.read(b) == [3, 3]


def a_copy_of_three_dimensions_takes_its_box():
    gpu = Gpu()
    graph, source, target = _graph(), ok(cu.cuMemAlloc(4 * 60)), ok(cu.cuMemAlloc(4 * 8))
    numbers = u32(*range(60))  # 3 slices of 4 rows of 5
    ok(cu.cuMemcpyHtoD(source, address(numbers), 4 * 60))
    copy = _copy(target, source, 8)
    copy.srcPitch, copy.srcHeight = 20, 4
    copy.srcXInBytes, copy.srcY, copy.srcZ = 4, 1, 1
    copy.dstPitch, copy.dstHeight, copy.Height, copy.Depth = 8, 2, 2, 2
    ok(cu.cuGraphAddMemcpyNode(graph, [], 0, copy, gpu.context))
    gpu.run_graph(graph)
    assert gpu.read(target, 8) == [26, 27, 31, 32, 46, 47, 51, 52]


def a_cycle_is_refused():
    gpu = Gpu()
    graph, word = _graph(), gpu.word(1)
    first = gpu.add_kernel(graph, [], word, 3, 0)
    second = gpu.add_kernel(graph, [first], word, 5, 0)
    assert refused(_link(cu.cuGraphAddDependencies, graph, [first], [first])) == "INVALID_VALUE"
    status, *_ = _link(cu.cuGraphAddDependencies, graph, [second], [first])
    if status == cu.CUresult.CUDA_SUCCESS:
        assert refused(cu.cuGraphInstantiate(graph, 0)) == "INVALID_VALUE"


def bad_arguments_are_refused():
    gpu = Gpu()
    graph, other, word = _graph(), _graph(), gpu.word(1)
    mine, theirs = gpu.add_kernel(graph, [], word, 1, 0), gpu.add_kernel(other, [], word, 1, 0)
    params = gpu.kernel_node(word, 1, 0)
    assert refused(cu.cuGraphCreate(1)) == "INVALID_VALUE"
    assert refused(cu.cuGraphAddKernelNode(graph, [theirs], 1, params)) == "INVALID_VALUE"
    assert refused(cu.cuGraphAddKernelNode(graph, [mine, mine], 2, params)) == "INVALID_VALUE"
    params.blockDimX = 5000
    assert refused(cu.cuGraphAddKernelNode(graph, [], 0, params)) == "INVALID_VALUE"
    assert refused(cu.cuGraphInstantiate(graph, 1 << 20)) == "INVALID_VALUE"
    assert len(_nodes(graph)) == 1


def a_clone_is_independent_and_finds_its_nodes():
    gpu = Gpu()
    graph, word = _graph(), gpu.word(1)
    node = gpu.add_kernel(graph, [], word, 3, 0)
    clone = ok(cu.cuGraphClone(graph))
    twin = ok(cu.cuGraphNodeFindInClone(node, clone))
    assert int(twin) == int(_nodes(clone)[0]) != int(node)
    ok(cu.cuGraphKernelNodeSetParams(node, gpu.kernel_node(word, 7, 0)))
    gpu.run_graph(clone)
    assert gpu.read(word) == [3]
    gpu.run_graph(graph)
    assert gpu.read(word) == [21]


def a_child_graph_is_a_copy_in_the_place_of_one_node():
    gpu = Gpu()
    graph, inner, word = _graph(), _graph(), gpu.word(1)
    plus = gpu.add_kernel(inner, [], word, 1, 1)
    gpu.add_kernel(inner, [plus], word, 10, 0)
    before = gpu.add_kernel(graph, [], word, 2, 0, slow=True)
    child = ok(cu.cuGraphAddChildGraphNode(graph, [before], 1, inner))
    gpu.add_kernel(graph, [child], word, 1, 7)
    ok(cu.cuGraphDestroy(inner))
    assert ok(cu.cuGraphNodeGetType(child)) == KIND.CU_GRAPH_NODE_TYPE_GRAPH
    own = ok(cu.cuGraphChildGraphNodeGetGraph(child))
    assert len(_nodes(own)) == 2
    gpu.run_graph(graph)
    assert gpu.read(word) == [37]
    ok(cu.cuGraphKernelNodeSetParams(_nodes(own)[1], gpu.kernel_node(word, 100, 0)))
    gpu.run_graph(graph)
    assert gpu.read(word) == [7507]


def parameters_can_be_read_and_changed_until_instantiation():
    gpu = Gpu()
    graph, word = _graph(), gpu.word(1)
    node = gpu.add_kernel(graph, [], word, 3, 4)
    fill = ok(cu.cuGraphAddMemsetNode(graph, [], 0, _memset(word, 5), gpu.context))
    params = ok(cu.cuGraphKernelNodeGetParams(node))
    assert (params.gridDimX, params.blockDimX, params.sharedMemBytes) == (1, 1, 0)
    values = (ctypes.c_void_p * 3).from_address(int(params.kernelParams))
    assert ctypes.c_uint.from_address(values[1]).value == 3
    assert ctypes.c_uint.from_address(values[2]).value == 4
    ok(cu.cuGraphMemsetNodeSetParams(fill, _memset(word, 6)))
    assert ok(cu.cuGraphMemsetNodeGetParams(fill)).value == 6
    assert refused(cu.cuGraphMemsetNodeGetParams(node)) == "INVALID_VALUE"
    ok(_link(cu.cuGraphAddDependencies, graph, [fill], [node]))
    gpu.run_graph(graph)
    assert gpu.read(word) == [22]


def an_instantiated_graph_keeps_its_parameters_and_can_get_new_ones():
    gpu = Gpu()
    graph, a, b, c = _graph(), gpu.word(1), gpu.word(1), gpu.word(0)
    stream = ok(cu.cuStreamCreate(NON_BLOCKING))
    fill = ok(cu.cuGraphAddMemsetNode(graph, [], 0, _memset(a, 2), gpu.context))
    node = gpu.add_kernel(graph, [fill], a, 3, 0, slow=True)
    copy = ok(cu.cuGraphAddMemcpyNode(graph, [node], 1, _copy(c, a, 4), gpu.context))
    executable = ok(cu.cuGraphInstantiate(graph, 0))
    ok(cu.cuGraphKernelNodeSetParams(node, gpu.kernel_node(a, 9, 0)))
    ok(cu.cuGraphLaunch(executable, stream))
    ok(cu.cuGraphExecKernelNodeSetParams(executable, node, gpu.kernel_node(b, 11, 0)))
    ok(cu.cuStreamSynchronize(stream))  # the launch in flight is not affected
    assert gpu.read(a) + gpu.read(b) + gpu.read(c) == [6, 1, 6]
    ok(cu.cuGraphExecMemsetNodeSetParams(executable, fill, _memset(a, 8), gpu.context))
    ok(cu.cuGraphExecMemcpyNodeSetParams(executable, copy, _copy(c, b, 4), gpu.context))
    ok(cu.cuGraphLaunch(executable, stream))
    ok(cu.cuStreamSynchronize(stream))
    assert gpu.read(a) + gpu.read(b) + gpu.read(c) == [8, 11, 11]
    ok(cu.cuGraphNodeSetEnabled(executable, node, 0))
    assert ok(cu.cuGraphNodeGetEnabled(executable, node)) == 0
    ok(cu.cuGraphLaunch(executable, stream))
    ok(cu.cuStreamSynchronize(stream))
    assert gpu.read(b) == [11]
    ok(cu.cuGraphNodeSetEnabled(executable, node, 1))
    ok(cu.cuGraphLaunch(executable, stream))
    ok(cu.cuStreamSynchronize(stream))
    assert gpu.read(b) == [121]


class _UpdateInfo(ctypes.Structure):
    _fields_ = (
        ("result", ctypes.c_int),
        ("node", ctypes.c_void_p),
        ("from_node", ctypes.c_void_p),
    )


def _update(executable, graph) -> tuple[int, int, int | None]:
    """Return status, result and node in error; after an error, the bindings omit the last two."""
    info, driver = _UpdateInfo(), ctypes.CDLL("libcuda.so.1")
    handles = [ctypes.c_void_p(int(handle)) for handle in (executable, graph)]
    return driver.cuGraphExecUpdate_v2(*handles, ctypes.byref(info)), info.result, info.node


def an_update_takes_over_a_graph_of_the_same_shape():
    gpu = Gpu()
    word = gpu.word(1)

    def line(*factors):
        graph, after = _graph(), []
        for factor in factors:
            after = [gpu.add_kernel(graph, after, word, factor, 0)]
        return graph

    executable = ok(cu.cuGraphInstantiate(line(2, 3), 0))
    assert _update(executable, line(5, 7)) == (0, RESULT.CU_GRAPH_EXEC_UPDATE_SUCCESS, None)
    ok(cu.cuGraphLaunch(executable, 0))
    assert gpu.read(word) == [35]
    failure = cu.CUresult.CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE
    topology = RESULT.CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED
    assert _update(executable, line(2, 3, 4)) == (failure, topology, None)
    other = line(2)
    changed = ok(cu.cuGraphAddMemsetNode(other, _nodes(other), 1, _memset(word, 5), gpu.context))
    kind = RESULT.CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED
    assert _update(executable, other) == (failure, kind, int(changed))
    ok(cu.cuGraphLaunch(executable, 0))
    assert gpu.read(word) == [35 * 35]


def launches_of_one_executable_graph_follow_each_other():
    gpu = Gpu()
    graph, word = _graph(), gpu.word(0)
    gpu.add_kernel(graph, [], word, 2, 1, slow=True)
    executable = ok(cu.cuGraphInstantiate(graph, 0))
    streams = [ok(cu.cuStreamCreate(NON_BLOCKING)) for _ in range(3)]
    ok(cu.cuGraphUpload(executable, streams[0]))
    for stream in streams:
        ok(cu.cuGraphLaunch(executable, stream))
    ok(cu.cuGraphExecDestroy(executable))  # destroyed once the last launch has ended
    for stream in streams:
        ok(cu.cuStreamSynchronize(stream))
    assert gpu.read(word) == [7]


def a_graph_is_ordered_within_its_stream_and_by_events():
    gpu = Gpu()
    graph, word = _graph(), gpu.word(1)
    first, second = (ok(cu.cuStreamCreate(NON_BLOCKING)) for _ in range(2))
    for addend in (1, 2):
        gpu.add_kernel(graph, [], gpu.word(0), 1, addend)
    node = gpu.add_kernel(graph, [], word, 10, 0, slow=True)
    gpu.add_kernel(graph, [node], word, 1, 2)
    executable, event = ok(cu.cuGraphInstantiate(graph, 0)), ok(cu.cuEventCreate(2))
    gpu.affine(word, 1, 4, stream=first, slow=True)
    ok(cu.cuGraphLaunch(executable, first))
    gpu.affine(word, 2, 0, stream=first)
    ok(cu.cuEventRecord(event, first))
    ok(cu.cuStreamWaitEvent(second, event, 0))
    gpu.affine(word, 1, 5, stream=second)
    ok(cu.cuStreamSynchronize(second))
    assert gpu.read(word) == [109]


def event_nodes_record_and_wait():
    gpu = Gpu()
    graph, word = _graph(), gpu.word(1)
    stream, other = (ok(cu.cuStreamCreate(NON_BLOCKING)) for _ in range(2))
    before, after = ok(cu.cuEventCreate(2)), ok(cu.cuEventCreate(2))
    wait = ok(cu.cuGraphAddEventWaitNode(graph, [], 0, before))
    node = gpu.add_kernel(graph, [wait], word, 10, 0)
    record = ok(cu.cuGraphAddEventRecordNode(graph, [node], 1, after))
    assert int(ok(cu.cuGraphEventWaitNodeGetEvent(wait))) == int(before)
    assert int(ok(cu.cuGraphEventRecordNodeGetEvent(record))) == int(after)
    gpu.affine(word, 1, 4, stream=other, slow=True)
    ok(cu.cuEventRecord(before, other))
    executable = ok(cu.cuGraphInstantiate(graph, 0))
    ok(cu.cuGraphLaunch(executable, stream))
    ok(cu.cuEventSynchronize(after))
    assert gpu.read(word) == [50]


def a_generic_node_is_added_by_its_type():
    gpu = Gpu()
    graph, word = _graph(), gpu.word(0)
    data = [None] if cu.CUDA_VERSION >= 13000 else []
    params = cu.CUgraphNodeParams()
    params.type = KIND.CU_GRAPH_NODE_TYPE_MEMSET
    params.memset.dst, params.memset.value, params.memset.elementSize = word, 6, 4
    params.memset.width, params.memset.height, params.memset.ctx = 1, 1, gpu.context
    fill = ok(cu.cuGraphAddNode(graph, [], *data, 0, params))
    assert ok(cu.cuGraphNodeGetType(fill)) == KIND.CU_GRAPH_NODE_TYPE_MEMSET
    empty = cu.CUgraphNodeParams()
    empty.type = KIND.CU_GRAPH_NODE_TYPE_EMPTY
    ok(cu.cuGraphAddNode(graph, [fill], *data, 1, empty))
    gpu.run_graph(graph)
    assert gpu.read(word) == [6]
    params.memset.value = 9
    ok(cu.cuGraphNodeSetParams(fill, params))
    gpu.run_graph(graph)
    assert gpu.read(word) == [9]


def a_user_object_lives_as_long_as_somebody_refers_to_it():
    gpu = Gpu()
    gone, calls = threading.Event(), []

    def destroy(argument):
        calls.append(argument)
        gone.set()

    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(destroy)
    function = cu.CUhostFn(ctypes.cast(call, ctypes.c_void_p).value)
    flag = cu.CUuserObject_flags.CU_USER_OBJECT_NO_DESTRUCTOR_SYNC
    thing = ok(cu.cuUserObjectCreate(5, function, 1, flag))
    graph, word = _graph(), gpu.word(1)
    gpu.add_kernel(graph, [], word, 2, 0, slow=True)
    ok(cu.cuGraphRetainUserObject(graph, thing, 1, 1))  # MOVE
    clone, executable = ok(cu.cuGraphClone(graph)), ok(cu.cuGraphInstantiate(graph, 0))
    ok(cu.cuGraphDestroy(graph))
    ok(cu.cuGraphDestroy(clone))
    ok(cu.cuGraphLaunch(executable, 0))
    assert calls == []
    ok(cu.cuGraphExecDestroy(executable))
    ok(cu.cuCtxSynchronize())
    with outside():
        assert gone.wait(10)
    assert calls == [5]


def a_graph_can_be_written_down_for_people():
    gpu = Gpu()
    graph, word = _graph(), gpu.word(1)
    first = gpu.add_kernel(graph, [], word, 2, 0)
    ok(cu.cuGraphAddMemsetNode(graph, [first], 1, _memset(word, 5), gpu.context))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.dot"
        ok(cu.cuGraphDebugDotPrint(graph, str(path).encode(), 1))
        text = path.read_text()
        missing = str(Path(folder) / "no" / "graph.dot").encode()
        assert refused(cu.cuGraphDebugDotPrint(graph, missing, 0)) == "OPERATING_SYSTEM"
    assert "digraph" in text
    assert "affine" in text
    assert "->" in text


def _allocate(graph, after, size):
    """Add a node that allocates; return it with the address that its memory will have."""
    params = cu.CUDA_MEM_ALLOC_NODE_PARAMS()
    params.poolProps.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    params.poolProps.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    params.bytesize = size
    node = ok(cu.cuGraphAddMemAllocNode(graph, after, len(after), params))
    return node, ok(cu.cuGraphMemAllocNodeGetParams(node)).dptr


def a_graph_allocates_what_it_needs():
    gpu = Gpu()
    graph, word = _graph(), gpu.word(7)
    alloc, scratch = _allocate(graph, [], 1 << 20)
    save = ok(cu.cuGraphAddMemcpyNode(graph, [alloc], 1, _copy(scratch, word, 4), gpu.context))
    fill = ok(cu.cuGraphAddMemsetNode(graph, [save], 1, _memset(word, 1), gpu.context))
    back = ok(cu.cuGraphAddMemcpyNode(graph, [fill], 1, _copy(word, scratch, 4), gpu.context))
    free = ok(cu.cuGraphAddMemFreeNode(graph, [back], 1, scratch))
    assert ok(cu.cuGraphNodeGetType(free)) == KIND.CU_GRAPH_NODE_TYPE_MEM_FREE
    assert refused(cu.cuGraphAddMemFreeNode(graph, [back], 1, scratch)) == "INVALID_VALUE"
    assert refused(cu.cuGraphAddMemFreeNode(graph, [back], 1, word)) == "INVALID_VALUE"
    assert refused(cu.cuGraphClone(graph)) in ("NOT_SUPPORTED", "INVALID_VALUE")
    refused(cu.cuGraphDestroyNode(save))
    executable = ok(cu.cuGraphInstantiate(graph, 0))
    refused(cu.cuGraphInstantiate(graph, 0))  # only one instance at a time
    for _ in range(2):
        ok(cu.cuGraphLaunch(executable, 0))
        assert gpu.read(word) == [7]
    used = cu.CUgraphMem_attribute.CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT
    assert int(ok(cu.cuDeviceGetGraphMemAttribute(gpu.device, used))) >= 1 << 20
    ok(cu.cuGraphExecDestroy(executable))
    ok(cu.cuGraphDestroy(graph))
    ok(cu.cuDeviceGraphMemTrim(gpu.device))
    assert int(ok(cu.cuDeviceGetGraphMemAttribute(gpu.device, used))) == 0


def memory_that_outlives_its_graph_is_freed_by_the_program_or_at_relaunch():
    gpu = Gpu()
    graph = _graph()
    alloc, pointer = _allocate(graph, [], 1 << 16)
    ok(cu.cuGraphAddMemsetNode(graph, [alloc], 1, _memset(pointer, 9), gpu.context))
    executable = ok(cu.cuGraphInstantiate(graph, 0))
    ok(cu.cuGraphLaunch(executable, 0))
    assert gpu.read(pointer) == [9]
    assert refused(cu.cuGraphLaunch(executable, 0)) == "INVALID_VALUE"
    ok(cu.cuMemFree(pointer))
    ok(cu.cuGraphLaunch(executable, 0))
    ok(cu.cuMemFreeAsync(pointer, 0))
    ok(cu.cuCtxSynchronize())
    ok(cu.cuGraphExecDestroy(executable))
    executable = ok(cu.cuGraphInstantiate(graph, 1))  # AUTO_FREE_ON_LAUNCH
    assert int(ok(cu.cuGraphExecGetFlags(executable))) == 1
    for _ in range(2):
        ok(cu.cuGraphLaunch(executable, 0))
    assert gpu.read(pointer) == [9]


def stream_ordered_allocations_are_captured():
    gpu = Gpu()
    stream, word = ok(cu.cuStreamCreate(NON_BLOCKING)), gpu.word(5)
    mode = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
    ok(cu.cuStreamBeginCapture(stream, mode))
    scratch = ok(cu.cuMemAllocAsync(4096, stream))
    ok(cu.cuMemcpyDtoDAsync(scratch, word, 4, stream))
    gpu.affine(scratch, 3, 0, stream=stream)
    ok(cu.cuMemcpyDtoDAsync(word, scratch, 4, stream))
    ok(cu.cuMemFreeAsync(scratch, stream))
    graph = ok(cu.cuStreamEndCapture(stream))
    kinds = [ok(cu.cuGraphNodeGetType(node)) for node in _nodes(graph)]
    assert kinds[0] == KIND.CU_GRAPH_NODE_TYPE_MEM_ALLOC
    assert kinds[-1] == KIND.CU_GRAPH_NODE_TYPE_MEM_FREE
    gpu.run_graph(graph, stream)
    assert gpu.read(word) == [15]


def _conditional(gpu, graph, kind, size, default):
    """Add a conditional node of that kind; return the graphs of its bodies with it."""
    handle = ok(cu.cuGraphConditionalHandleCreate(graph, gpu.context, default, 1))
    params = cu.CUgraphNodeParams()
    params.type = KIND.CU_GRAPH_NODE_TYPE_CONDITIONAL
    params.conditional.handle = handle
    params.conditional.type = getattr(cu.CUgraphConditionalNodeType, f"CU_GRAPH_COND_TYPE_{kind}")
    params.conditional.size, params.conditional.ctx = size, gpu.context
    data = [None] if cu.CUDA_VERSION >= 13000 else []
    node = ok(cu.cuGraphAddNode(graph, [], *data, 0, params))
    return node, params.conditional.phGraph_out


def a_condition_chooses_what_runs():
    gpu = Gpu()
    for kind, size, default, factor in (
        ("IF", 1, 1, 2),
        ("IF", 1, 0, 1),
        ("IF", 2, 0, 3),
        ("SWITCH", 3, 2, 5),
        ("SWITCH", 3, 3, 1),
        ("WHILE", 1, 0, 1),
    ):
        graph, word = _graph(), gpu.word(1)
        node, bodies = _conditional(gpu, graph, kind, size, default)
        assert len(bodies) == size
        for body, by in zip(bodies, (2, 3, 5), strict=False):
            first = gpu.add_kernel(body, [], word, by, 0, slow=True)
            gpu.add_kernel(body, [first], word, 10, 0)
        gpu.add_kernel(graph, [node], word, 1, 4)
        gpu.run_graph(graph)
        assert gpu.read(word) == [factor * (10 if factor > 1 else 1) + 4], (kind, size, default)


def graphs_with_conditions_have_their_rules():
    gpu = Gpu()
    graph, unused = _graph(), _graph()
    bodies = _conditional(gpu, graph, "IF", 1, 1)[1]
    host = cu.CUDA_HOST_NODE_PARAMS()
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: None)
    host.fn = ctypes.cast(call, ctypes.c_void_p).value
    refused(cu.cuGraphAddHostNode(bodies[0], [], 0, host))
    refused(cu.cuGraphClone(graph))
    refused(cu.cuGraphAddChildGraphNode(_graph(), [], 0, graph))
    assert refused(cu.cuGraphConditionalHandleCreate(unused, gpu.context, 0, 2)) == "INVALID_VALUE"
