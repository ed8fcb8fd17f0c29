"""Stream capture: what becomes part of a graph, and what is forbidden meanwhile."""

from __future__ import annotations

import ctypes
import threading

from cuda.bindings import driver as cu
from gpu import Gpu, address, ok, refused, u32

MODE = cu.CUstreamCaptureMode
GLOBAL = MODE.CU_STREAM_CAPTURE_MODE_GLOBAL
LOCAL = MODE.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
RELAXED = MODE.CU_STREAM_CAPTURE_MODE_RELAXED
STATUS = cu.CUstreamCaptureStatus
NONE = STATUS.CU_STREAM_CAPTURE_STATUS_NONE
ACTIVE = STATUS.CU_STREAM_CAPTURE_STATUS_ACTIVE
INVALIDATED = STATUS.CU_STREAM_CAPTURE_STATUS_INVALIDATED
NON_BLOCKING = 1
KIND = cu.CUgraphNodeType


def _stream(flags=NON_BLOCKING):
    return ok(cu.cuStreamCreate(flags))


def _event():
    return ok(cu.cuEventCreate(2))


def _types(graph) -> list:
    nodes, _ = ok(cu.cuGraphGetNodes(graph, ok(cu.cuGraphGetNodes(graph))[1]))
    return [ok(cu.cuGraphNodeGetType(node)) for node in nodes]


def _edge_count(graph) -> int:
    return ok(cu.cuGraphGetEdges(graph))[-1]


def _in_thread(gpu, work):
    """Return what `work` returns in another thread with the same context."""
    results = []

    def run():
        ok(cu.cuCtxSetCurrent(gpu.context))
        results.append(work())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return results[0]


def _is_lost(stream) -> bool:
    """Check that the capture was invalidated: it can only be ended, and gives no graph."""
    assert ok(cu.cuStreamIsCapturing(stream)) == INVALIDATED
    status, graph = cu.cuStreamEndCapture(stream)
    assert ok(cu.cuStreamIsCapturing(stream)) == NONE
    return status.name == "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED" and not int(graph or 0)


def captured_work_runs_only_when_its_graph_is_launched():
    gpu = Gpu()
    stream, word = _stream(), gpu.word(1)
    ok(cu.cuStreamBeginCapture(stream, GLOBAL))
    assert ok(cu.cuStreamIsCapturing(stream)) == ACTIVE
    gpu.affine(word, 3, 1, stream=stream)
    gpu.affine(word, 10, 0, stream=stream)
    graph = ok(cu.cuStreamEndCapture(stream))
    assert ok(cu.cuStreamIsCapturing(stream)) == NONE
    ok(cu.cuStreamSynchronize(stream))
    assert gpu.read(word) == [1]
    executable = ok(cu.cuGraphInstantiate(graph, 0))
    ok(cu.cuGraphDestroy(graph))
    for expected in (40, 1210):
        ok(cu.cuGraphLaunch(executable, stream))
        ok(cu.cuStreamSynchronize(stream))
        assert gpu.read(word) == [expected]


def each_kind_of_work_becomes_its_kind_of_node():
    gpu = Gpu()
    stream, word, other = _stream(), gpu.word(1), gpu.word(0)
    pinned, seen = ok(cu.cuMemHostAlloc(4, 0)), []
    view = (ctypes.c_uint * 1).from_address(pinned)
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda user: seen.append((user, view[0])))
    ok(cu.cuStreamBeginCapture(stream, GLOBAL))
    ok(cu.cuMemsetD32Async(word, 7, 1, stream))
    gpu.affine(word, 2, 1, stream=stream)
    ok(cu.cuMemcpyDtoDAsync(other, word, 4, stream))
    ok(cu.cuMemcpyDtoHAsync(pinned, other, 4, stream))
    ok(cu.cuLaunchHostFunc(stream, ctypes.cast(call, ctypes.c_void_p).value, 5))
    graph = ok(cu.cuStreamEndCapture(stream))
    assert _types(graph) == [
        KIND.CU_GRAPH_NODE_TYPE_MEMSET,
        KIND.CU_GRAPH_NODE_TYPE_KERNEL,
        KIND.CU_GRAPH_NODE_TYPE_MEMCPY,
        KIND.CU_GRAPH_NODE_TYPE_MEMCPY,
        KIND.CU_GRAPH_NODE_TYPE_HOST,
    ]
    assert _edge_count(graph) == 4
    gpu.run_graph(graph, stream)
    assert seen == [(5, 15)]
    host = u32(4)  # a captured copy reads its source at each launch
    ok(cu.cuStreamBeginCapture(stream, GLOBAL))
    ok(cu.cuMemcpyHtoDAsync(word, address(host), 4, stream))
    graph = ok(cu.cuStreamEndCapture(stream))
    for value in (11, 12):
        host[0] = value
        gpu.run_graph(graph, stream)
        assert gpu.read(word) == [value]


def a_stream_joins_by_an_event_and_is_joined_by_one():
    gpu = Gpu()
    first, second, word, other = _stream(), _stream(), gpu.word(1), gpu.word(1)
    fork, join = _event(), _event()
    ok(cu.cuStreamBeginCapture(first, GLOBAL))
    gpu.affine(word, 2, 0, stream=first)
    ok(cu.cuEventRecord(fork, first))
    ok(cu.cuStreamWaitEvent(second, fork, 0))
    assert ok(cu.cuStreamIsCapturing(second)) == ACTIVE
    gpu.affine(other, 5, 0, stream=second)
    gpu.affine(word, 3, 0, stream=first)
    ok(cu.cuEventRecord(join, second))
    ok(cu.cuStreamWaitEvent(first, join, 0))
    gpu.affine(other, 1, 1, stream=first)
    graph = ok(cu.cuStreamEndCapture(first))
    assert ok(cu.cuStreamIsCapturing(second)) == NONE
    assert len(_types(graph)) == 4
    assert _edge_count(graph) == 4
    assert ok(cu.cuGraphGetRootNodes(graph))[1] == 1
    gpu.run_graph(graph, first)
    assert gpu.read(word) + gpu.read(other) == [6, 6]


def a_fork_that_is_not_joined_is_an_error():
    gpu = Gpu()
    first, second, word, fork = _stream(), _stream(), gpu.word(1), _event()
    ok(cu.cuStreamBeginCapture(first, GLOBAL))
    ok(cu.cuEventRecord(fork, first))
    ok(cu.cuStreamWaitEvent(second, fork, 0))
    gpu.affine(word, 2, 0, stream=second)
    assert refused(cu.cuStreamEndCapture(second)) == "STREAM_CAPTURE_UNMATCHED"
    assert refused(cu.cuStreamEndCapture(first)).startswith("STREAM_CAPTURE_")
    ok(cu.cuStreamBeginCapture(first, GLOBAL))
    ok(cu.cuEventRecord(fork, first))
    ok(cu.cuStreamWaitEvent(second, fork, 0))
    gpu.affine(word, 2, 0, stream=second)
    assert refused(cu.cuStreamEndCapture(first)) == "STREAM_CAPTURE_UNJOINED"
    assert ok(cu.cuStreamIsCapturing(second)) == NONE
    gpu.affine(word, 2, 0, stream=second)
    ok(cu.cuStreamSynchronize(second))
    assert gpu.read(word) == [2]


def a_capture_can_neither_be_merged_with_another_nor_depend_on_work_that_runs():
    gpu = Gpu()
    first, second, event = _stream(), _stream(), _event()
    ok(cu.cuStreamBeginCapture(first, GLOBAL))
    ok(cu.cuStreamBeginCapture(second, GLOBAL))
    ok(cu.cuEventRecord(event, first))
    assert refused(cu.cuStreamWaitEvent(second, event, 0)) == "STREAM_CAPTURE_MERGE"
    assert _is_lost(second)
    cu.cuStreamEndCapture(first)
    word = gpu.word(1)
    gpu.affine(word, 1, 1, stream=second, slow=True)
    ok(cu.cuEventRecord(event, second))
    ok(cu.cuStreamBeginCapture(first, GLOBAL))
    assert refused(cu.cuStreamWaitEvent(first, event, 0)) == "STREAM_CAPTURE_ISOLATION"
    assert _is_lost(first)
    ok(cu.cuCtxSynchronize())


def a_capturing_stream_cannot_be_waited_for_and_after_an_error_only_says_so():
    gpu = Gpu()
    stream, word = _stream(), gpu.word(1)
    for use in (cu.cuStreamSynchronize, cu.cuStreamQuery):
        ok(cu.cuStreamBeginCapture(stream, RELAXED))
        gpu.affine(word, 2, 0, stream=stream)
        assert refused(use(stream)) == "STREAM_CAPTURE_UNSUPPORTED"
        assert _is_lost(stream)
    ok(cu.cuStreamBeginCapture(stream, RELAXED))
    assert refused(cu.cuCtxSynchronize()) == "STREAM_CAPTURE_UNSUPPORTED"
    assert _is_lost(stream)
    event = _event()
    ok(cu.cuStreamBeginCapture(stream, RELAXED))
    assert refused(cu.cuStreamSynchronize(stream)) == "STREAM_CAPTURE_UNSUPPORTED"
    types = (None, ctypes.c_uint, ctypes.c_uint)
    launched = gpu.launch("affine", (word, 2, 0), types, stream=stream)
    assert refused(launched) == "STREAM_CAPTURE_INVALIDATED"
    assert refused(cu.cuEventRecord(event, stream)) == "STREAM_CAPTURE_INVALIDATED"
    assert _is_lost(stream)
    gpu.affine(word, 2, 0, stream=stream)
    ok(cu.cuStreamSynchronize(stream))
    assert gpu.read(word) == [2]


def a_captured_event_has_no_state_to_ask_for():
    Gpu()
    for use in (cu.cuEventQuery, cu.cuEventSynchronize):
        stream, event = _stream(), ok(cu.cuEventCreate(0))
        ok(cu.cuStreamBeginCapture(stream, RELAXED))
        ok(cu.cuEventRecord(event, stream))
        assert refused(use(event)) == "CAPTURED_EVENT"
        cu.cuStreamEndCapture(stream)
        ok(cu.cuEventRecord(event, stream))
        ok(cu.cuEventSynchronize(event))
        ok(use(event))


def the_legacy_stream_cannot_capture_nor_be_used_beside_a_blocking_capture():
    gpu = Gpu()
    word = gpu.word(1)
    assert refused(cu.cuStreamBeginCapture(0, GLOBAL)) == "STREAM_CAPTURE_UNSUPPORTED"
    stream = _stream(flags=0)
    ok(cu.cuStreamBeginCapture(stream, RELAXED))
    assert refused(cu.cuStreamIsCapturing(0)) == "STREAM_CAPTURE_IMPLICIT"
    assert ok(cu.cuStreamIsCapturing(stream)) == ACTIVE
    types = (None, ctypes.c_uint, ctypes.c_uint)
    assert refused(gpu.launch("affine", (word, 2, 0), types)) == "STREAM_CAPTURE_IMPLICIT"
    assert _is_lost(stream)
    stream = _stream()  # the legacy stream ignores a non-blocking one
    ok(cu.cuStreamBeginCapture(stream, RELAXED))
    gpu.affine(word, 2, 0)
    gpu.affine(word, 5, 0, stream=stream)
    assert len(_types(ok(cu.cuStreamEndCapture(stream)))) == 1
    ok(cu.cuCtxSynchronize())
    assert gpu.read(word) == [2]


def unsafe_calls_are_refused_as_the_modes_say_unless_the_thread_exempts_itself():
    gpu = Gpu()
    stream = _stream()
    for mode, here, elsewhere in (
        (GLOBAL, False, False),
        (LOCAL, False, True),
        (RELAXED, True, True),
    ):
        for local, allowed in ((True, here), (False, elsewhere)):
            ok(cu.cuStreamBeginCapture(stream, mode))
            allocate = lambda: cu.cuMemAlloc(4)  # noqa: E731
            result = allocate() if local else _in_thread(gpu, allocate)
            if allowed:
                ok(result)
                ok(cu.cuStreamEndCapture(stream))
            else:
                assert refused(result) == "STREAM_CAPTURE_UNSUPPORTED"
                assert _is_lost(stream)
    ok(cu.cuStreamBeginCapture(stream, GLOBAL))
    before = ok(cu.cuThreadExchangeStreamCaptureMode(RELAXED))
    pointer = ok(cu.cuMemAlloc(4))
    ok(cu.cuThreadExchangeStreamCaptureMode(before))
    ok(cu.cuStreamEndCapture(stream))
    ok(cu.cuMemFree(pointer))


def a_capture_begins_once_and_ends_in_its_thread_unless_relaxed():
    gpu = Gpu()
    stream = _stream()
    ok(cu.cuStreamBeginCapture(stream, LOCAL))
    result = _in_thread(gpu, lambda: cu.cuStreamEndCapture(stream))
    assert refused(result) == "STREAM_CAPTURE_WRONG_THREAD"
    cu.cuStreamEndCapture(stream)
    ok(cu.cuStreamBeginCapture(stream, RELAXED))
    ok(_in_thread(gpu, lambda: cu.cuStreamEndCapture(stream)))
    assert refused(cu.cuStreamEndCapture(stream)) == "ILLEGAL_STATE"
    ok(cu.cuStreamBeginCapture(stream, GLOBAL))
    assert refused(cu.cuStreamBeginCapture(stream, GLOBAL)) == "ILLEGAL_STATE"
    ok(cu.cuStreamEndCapture(stream))


def the_capture_tells_of_itself_and_its_next_dependencies_can_be_set():
    gpu = Gpu()
    stream, word = _stream(), gpu.word(1)
    ok(cu.cuStreamBeginCapture(stream, GLOBAL))
    first_id = ok(cu.cuStreamGetCaptureInfo(stream))[1]
    gpu.affine(word, 2, 0, stream=stream)
    status, same_id, graph, nodes, *_, count = ok(cu.cuStreamGetCaptureInfo(stream))
    assert (status, int(same_id), count, len(nodes)) == (ACTIVE, int(first_id), 1, 1)
    own = gpu.add_kernel(graph, nodes, word, 3, 0)
    ok(_set_dependencies(stream, [own]))
    gpu.affine(word, 5, 1, stream=stream)
    captured = ok(cu.cuStreamEndCapture(stream))
    assert len(_types(captured)) == 3
    assert _edge_count(captured) == 2
    gpu.run_graph(captured, stream)
    assert gpu.read(word) == [31]
    ok(cu.cuStreamBeginCapture(stream, GLOBAL))
    assert int(ok(cu.cuStreamGetCaptureInfo(stream))[1]) != int(first_id)
    ok(cu.cuStreamEndCapture(stream))
    assert ok(cu.cuStreamGetCaptureInfo(stream))[0] == NONE
    assert refused(_set_dependencies(stream, [])) == "ILLEGAL_STATE"


def _set_dependencies(stream, nodes):
    """Set dependencies; version 13 of the bindings takes edge data, version 12 does not."""
    edges = [None] if cu.CUDA_VERSION >= 13000 else []
    return cu.cuStreamUpdateCaptureDependencies(stream, nodes, *edges, len(nodes), 1)


def a_capture_may_add_to_a_graph():
    gpu = Gpu()
    stream, word = _stream(), gpu.word(1)
    graph = ok(cu.cuGraphCreate(0))
    root = gpu.add_kernel(graph, [], word, 2, 0)
    ok(cu.cuStreamBeginCaptureToGraph(stream, graph, [root], [cu.CUgraphEdgeData()], 1, GLOBAL))
    gpu.affine(word, 10, 3, stream=stream)
    assert int(ok(cu.cuStreamEndCapture(stream))) == int(graph)
    assert len(_types(graph)) == 2
    gpu.run_graph(graph, stream)
    assert gpu.read(word) == [23]


def external_events_are_nodes_and_work_across_the_boundary():
    gpu = Gpu()
    first, second, word = _stream(), _stream(), gpu.word(1)
    before, after = _event(), _event()
    ok(cu.cuStreamBeginCapture(first, GLOBAL))
    ok(cu.cuStreamWaitEvent(first, before, 1))
    gpu.affine(word, 10, 0, stream=first)
    ok(cu.cuEventRecordWithFlags(after, first, 1))
    graph = ok(cu.cuStreamEndCapture(first))
    assert _types(graph) == [
        KIND.CU_GRAPH_NODE_TYPE_WAIT_EVENT,
        KIND.CU_GRAPH_NODE_TYPE_KERNEL,
        KIND.CU_GRAPH_NODE_TYPE_EVENT_RECORD,
    ]
    executable = ok(cu.cuGraphInstantiate(graph, 0))
    gpu.affine(word, 1, 4, stream=second, slow=True)
    ok(cu.cuEventRecord(before, second))
    ok(cu.cuGraphLaunch(executable, first))
    ok(cu.cuEventSynchronize(after))
    assert gpu.read(word) == [50]
    assert refused(cu.cuEventRecordWithFlags(after, first, 1)) == "INVALID_VALUE"


def a_launch_into_a_capturing_stream_becomes_a_child_graph():
    gpu = Gpu()
    stream, word = _stream(), gpu.word(1)
    graph = ok(cu.cuGraphCreate(0))
    gpu.add_kernel(graph, [], word, 3, 0)
    executable = ok(cu.cuGraphInstantiate(graph, 0))
    ok(cu.cuStreamBeginCapture(stream, GLOBAL))
    gpu.affine(word, 1, 1, stream=stream)
    ok(cu.cuGraphLaunch(executable, stream))
    gpu.affine(word, 1, 1, stream=stream)
    outer = ok(cu.cuStreamEndCapture(stream))
    assert _types(outer)[1] == KIND.CU_GRAPH_NODE_TYPE_GRAPH
    gpu.run_graph(outer, stream)
    assert gpu.read(word) == [7]


def memory_operations_of_a_stream_are_captured():
    gpu = Gpu()
    stream, flag = _stream(), gpu.word(0)
    ok(cu.cuStreamBeginCapture(stream, GLOBAL))
    ok(cu.cuStreamWriteValue32(stream, flag, 9, 0))
    ok(cu.cuStreamWaitValue32(stream, flag, 9, 1))
    graph = ok(cu.cuStreamEndCapture(stream))
    assert set(_types(graph)) == {KIND.CU_GRAPH_NODE_TYPE_BATCH_MEM_OP}
    gpu.run_graph(graph, stream)
    assert gpu.read(flag) == [9]


def a_programmatic_launch_is_captured_as_an_edge_of_its_kind():
    gpu = Gpu()
    stream, word = _stream(), gpu.word(1)
    config = cu.CUlaunchConfig()
    config.gridDimX = config.gridDimY = config.gridDimZ = 1
    config.blockDimX = config.blockDimY = config.blockDimZ = 1
    config.hStream, config.numAttrs = stream, 1
    attribute = cu.CUlaunchAttribute()
    attribute.id = cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    attribute.value.programmaticStreamSerializationAllowed = 1
    config.attrs = [attribute]
    params = ((word, 3, 1), (None, ctypes.c_uint, ctypes.c_uint))
    ok(cu.cuStreamBeginCapture(stream, GLOBAL))
    gpu.affine(word, 2, 0, stream=stream)
    ok(cu.cuLaunchKernelEx(config, gpu.function("affine"), params, 0))
    graph = ok(cu.cuStreamEndCapture(stream))
    driver, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_size_t(1)
    one, other, data = ctypes.c_void_p(), ctypes.c_void_p(), (ctypes.c_ubyte * 8)()
    ends = [ctypes.c_void_p(int(graph)), ctypes.byref(one), ctypes.byref(other)]
    assert driver.cuGraphGetEdges_v2(*ends, data, ctypes.byref(count)) == 0
    assert list(data)[:3] == [1, 0, 1]  # from port, to port, type
    assert driver.cuGraphGetEdges_v2(*ends, None, ctypes.byref(count)) == 402  # LOSSY_QUERY
