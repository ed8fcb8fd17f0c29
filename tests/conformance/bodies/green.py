"""Green contexts: parts of a device's SMs, for streams of its primary context."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from cuda.bindings import driver as cu
from gpu import Gpu, ok, refused

SM = cu.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
FINE = 1  # CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING
DEFAULT_STREAM = 1
NON_BLOCKING = 1
BLOCKS, NOWHERE = 256, 2**32 - 1
BAD_CONFIGURATION = ("INVALID_VALUE", "INVALID_RESOURCE_CONFIGURATION")


def _all_sms(gpu):
    return ok(cu.cuDeviceGetDevResource(gpu.device, SM))


def _split(resource, groups, sms, flags=FINE):
    """Split by count; return (results, remainder)."""
    results, count, remainder = ok(cu.cuDevSmResourceSplitByCount(groups, resource, flags, sms))
    return results[:count], remainder


def _green(gpu, *resources):
    desc = ok(cu.cuDevResourceGenerateDesc(list(resources), len(resources)))
    return ok(cu.cuGreenCtxCreate(desc, gpu.device, DEFAULT_STREAM))


def _halves(gpu):
    """Return two green contexts on disjoint SMs."""
    whole = _all_sms(gpu)
    results, _ = _split(whole, 2, whole.sm.smCount // 4)
    return [_green(gpu, part) for part in results]


def _stream(green):
    return ok(cu.cuGreenCtxStreamCreate(green, NON_BLOCKING, 0))


class _Sms:
    """Finds the SMs on which a kernel's blocks run."""

    def __init__(self, gpu):
        self.gpu, self.noted = gpu, ok(cu.cuMemAlloc(4 * BLOCKS))
        self.forget()

    def forget(self):
        ok(cu.cuMemsetD32(self.noted, NOWHERE, BLOCKS))
        ok(cu.cuCtxSynchronize())

    def launch(self, stream):
        ok(self.gpu.launch("note_sm", (self.noted,), (None,), stream=stream, grid=BLOCKS))

    def node(self, kernel, context):
        """Return the parameters of a node that does the same as `launch`."""
        params = cu.CUDA_KERNEL_NODE_PARAMS()
        params.kern, params.ctx, params.gridDimX = kernel, context, BLOCKS
        params.gridDimY = params.gridDimZ = 1
        params.blockDimX = params.blockDimY = params.blockDimZ = 1
        params.kernelParams = ((self.noted,), (None,))
        return params

    def of_graph(self, executable, stream):
        ok(cu.cuGraphLaunch(executable, stream))
        return self.read(stream)

    def read(self, stream):
        ok(cu.cuStreamSynchronize(stream))
        used = set(self.gpu.read(self.noted, BLOCKS)) - {NOWHERE}
        self.forget()
        return used


def _sms_used(gpu, stream):
    sms = _Sms(gpu)
    sms.launch(stream)
    used = sms.read(stream)
    ok(cu.cuMemFree(sms.noted))
    return used


class _Sets:
    """Two disjoint green contexts, each with a stream, and a stream of the primary context."""

    def __init__(self, gpu):
        greens = _halves(gpu)
        self.contexts = [ok(cu.cuCtxFromGreenCtx(green)) for green in greens]
        self.streams = [_stream(green) for green in greens]
        self.plain = ok(cu.cuStreamCreate(NON_BLOCKING))
        self.size = ok(cu.cuGreenCtxGetDevResource(greens[0], SM)).sm.smCount
        self.second = _sms_used(gpu, self.streams[1])

    def are_first(self, used) -> bool:
        """Tell whether these may be SMs of the first green context."""
        return 0 < len(used) <= self.size and not used & self.second


def _capture(stream, work):
    ok(cu.cuStreamBeginCapture(stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
    work()
    return ok(cu.cuStreamEndCapture(stream))


def _instantiate(graph):
    return ok(cu.cuGraphInstantiate(graph, 0))


def _only_node(graph):
    return ok(cu.cuGraphGetNodes(graph, 1))[0][0]


def _noting_kernel():
    image = Path(os.environ["TEST_IMAGE"]).read_bytes()
    library = ok(cu.cuLibraryLoadData(image, [], [], 0, [], [], 0))
    return ok(cu.cuLibraryGetKernel(library, b"note_sm"))


def a_split_gives_disjoint_groups_of_one_size():
    gpu = Gpu()
    whole = _all_sms(gpu)
    count = cu.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
    assert whole.sm.smCount == ok(cu.cuDeviceGetAttribute(count, gpu.device))
    possible = ok(cu.cuDevSmResourceSplitByCount(0, whole, FINE, 2))[1]
    assert possible >= 2
    results, remainder = _split(whole, 2, 2)
    sizes = [part.sm.smCount for part in results]
    assert len(sizes) == 2
    assert sizes[0] == sizes[1] >= 2
    assert sum(sizes) + (remainder.sm.smCount if remainder.type == SM else 0) == whole.sm.smCount
    fewer, _ = _split(whole, possible + 100, 2)
    assert len(fewer) == possible


def the_usual_granularity_is_that_of_the_architecture():
    gpu = Gpu()
    whole = _all_sms(gpu)
    major = ok(cu.cuDeviceComputeCapability(gpu.device))[0]
    least = 8 if major >= 9 else 4
    results, _ = _split(whole, 1, 1, flags=0)
    assert results[0].sm.smCount >= least
    assert results[0].sm.smCount % (8 if major >= 9 else 2) == 0


def wrong_splits_are_refused():
    gpu = Gpu()
    whole = _all_sms(gpu)
    more = whole.sm.smCount + 1
    assert refused(cu.cuDevSmResourceSplitByCount(1, whole, 0, more)) in BAD_CONFIGURATION
    assert refused(cu.cuDevSmResourceSplitByCount(1, whole, 1 << 20, 8)) == "INVALID_VALUE"
    invalid = cu.CUdevResource()
    assert refused(cu.cuDevSmResourceSplitByCount(1, invalid, 0, 8)) in (
        "INVALID_RESOURCE_TYPE",
        *BAD_CONFIGURATION,
    )
    results, _ = _split(whole, 1, 2)
    assert refused(cu.cuDevSmResourceSplitByCount(1, results[0], FINE, 2)) in (
        "INVALID_RESOURCE_TYPE",
        *BAD_CONFIGURATION,
    )
    wrong_type = cu.CUdevResourceType.CU_DEV_RESOURCE_TYPE_INVALID
    assert refused(cu.cuDeviceGetDevResource(gpu.device, wrong_type)) in (
        "INVALID_RESOURCE_TYPE",
        "INVALID_VALUE",
    )
    assert refused(cu.cuDeviceGetDevResource(99, SM)) == "INVALID_DEVICE"


def descriptors_join_groups_of_one_split_only():
    gpu = Gpu()
    whole = _all_sms(gpu)
    (a, b), _ = _split(whole, 2, 2)
    (other,), _ = _split(whole, 1, 2)
    both = _green(gpu, a, b)
    assert ok(cu.cuGreenCtxGetDevResource(both, SM)).sm.smCount == a.sm.smCount + b.sm.smCount
    ok(cu.cuGreenCtxDestroy(both))
    assert refused(cu.cuDevResourceGenerateDesc([a, other], 2)) == "INVALID_RESOURCE_CONFIGURATION"
    assert refused(cu.cuDevResourceGenerateDesc([], 0)) == "INVALID_VALUE"


def kernels_stay_on_the_sms_of_their_green_context():
    gpu = Gpu()
    greens = _halves(gpu)
    used = [_sms_used(gpu, _stream(green)) for green in greens]
    assert used[0]
    assert used[1]
    assert not used[0] & used[1]
    for green, sms in zip(greens, used, strict=True):
        assert len(sms) <= ok(cu.cuGreenCtxGetDevResource(green, SM)).sm.smCount


def a_cooperative_grid_must_fit_into_its_green_context():
    gpu = Gpu()
    green, _ = _halves(gpu)
    function, stream = gpu.function("count_up"), _stream(green)
    sms = ok(cu.cuGreenCtxGetDevResource(green, SM)).sm.smCount
    most = sms * ok(cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, 256, 0))
    launch = cu.cuLaunchCooperativeKernel
    ok(launch(function, most, 1, 1, 256, 1, 1, 0, stream, 0))
    too_large = launch(function, most + 1, 1, 1, 256, 1, 1, 0, stream, 0)
    assert refused(too_large) == "COOPERATIVE_LAUNCH_TOO_LARGE"
    ok(launch(function, most + 1, 1, 1, 256, 1, 1, 0, 0, 0))
    ok(cu.cuCtxSynchronize())


def a_green_context_can_be_divided_again():
    gpu = Gpu()
    whole = _all_sms(gpu)
    (half,), _ = _split(whole, 1, whole.sm.smCount // 2)
    green = _green(gpu, half)
    own = ok(cu.cuGreenCtxGetDevResource(green, SM))
    assert own.sm.smCount == half.sm.smCount
    quarters, _ = _split(own, 2, 2)
    used = [_sms_used(gpu, _stream(_green(gpu, part))) for part in quarters]
    assert not used[0] & used[1]
    assert used[0] | used[1] <= _sms_used(gpu, _stream(green)) or own.sm.smCount > 4


def a_green_context_works_as_a_context():
    gpu = Gpu()
    green = _halves(gpu)[0]
    word = gpu.word(5)
    context = ok(cu.cuCtxFromGreenCtx(green))
    assert int(ok(cu.cuCtxFromGreenCtx(green))) == int(context)
    ok(cu.cuCtxSetCurrent(context))
    assert int(ok(cu.cuCtxGetCurrent())) == int(context)
    assert int(ok(cu.cuCtxGetDevice())) == int(gpu.device)
    stream = ok(cu.cuStreamCreate(0))
    gpu.affine(word, 2, 1, stream=stream)
    ok(cu.cuCtxSynchronize())
    assert gpu.read(word) == [11]
    assert int(ok(cu.cuStreamGetGreenCtx(stream))) == int(green)
    assert int(ok(cu.cuStreamGetCtx(stream))) == int(context)
    used = _sms_used(gpu, stream)
    assert len(used) <= ok(cu.cuCtxGetDevResource(context, SM)).sm.smCount
    ok(cu.cuCtxSetCurrent(gpu.context))
    assert int(ok(cu.cuStreamGetGreenCtx(ok(cu.cuStreamCreate(0))))) == 0


def streams_tell_their_green_context():
    gpu = Gpu()
    green = _halves(gpu)[0]
    stream = _stream(green)
    assert int(ok(cu.cuStreamGetGreenCtx(stream))) == int(green)
    assert int(ok(cu.cuStreamGetCtx(stream))) == int(ok(cu.cuCtxFromGreenCtx(green)))
    # A green context takes no blocking stream.
    assert refused(cu.cuGreenCtxStreamCreate(green, 0, 0)) == "INVALID_VALUE"
    if hasattr(cu, "cuGreenCtxGetId"):
        ids = {int(ok(cu.cuGreenCtxGetId(g))) for g in [green, *_halves(gpu)]}
        assert len(ids) == 3


def _refusal(call) -> str:
    try:
        return refused(call())
    except KeyError as unknown:  # cuda.bindings 13.0 has no name for it
        return {917: "STREAM_DETACHED"}[unknown.args[0]]


def streams_are_detached_when_their_green_context_goes():
    gpu = Gpu()
    green, other = _halves(gpu)
    stream, kept = _stream(green), _stream(other)
    word = gpu.word(1)
    gpu.affine(word, 2, 1, stream=stream)
    ok(cu.cuStreamSynchronize(stream))
    ok(cu.cuGreenCtxDestroy(green))
    types = (None, ctypes.c_uint, ctypes.c_uint)
    for call in (
        lambda: cu.cuStreamSynchronize(stream),
        lambda: gpu.launch("affine", (word, 2, 1), types, stream=stream),
    ):
        assert _refusal(call) == "STREAM_DETACHED"
    ok(cu.cuStreamDestroy(stream))
    gpu.affine(word, 2, 1, stream=kept)
    ok(cu.cuStreamSynchronize(kept))
    assert gpu.read(word) == [7]


def a_green_context_holds_its_primary_context():
    gpu = Gpu()
    green = _halves(gpu)[0]
    ok(cu.cuDevicePrimaryCtxRelease(gpu.device))
    assert ok(cu.cuDevicePrimaryCtxGetState(gpu.device))[1] == 1
    stream = _stream(green)
    ok(cu.cuStreamSynchronize(stream))


def green_contexts_wait_for_each_other_by_events():
    gpu = Gpu()
    first, second = _halves(gpu)
    streams = [_stream(first), _stream(first)]
    later = _stream(second)
    words = [gpu.word(1), gpu.word(1)]
    event = ok(cu.cuEventCreate(0))
    for stream, word in zip(streams, words, strict=True):
        gpu.affine(word, 3, 1, stream=stream, slow=True)
    ok(cu.cuGreenCtxRecordEvent(first, event))
    ok(cu.cuGreenCtxWaitEvent(second, event))
    for word in words:
        gpu.affine(word, 10, 5, stream=later)
    ok(cu.cuStreamSynchronize(later))
    assert [gpu.read(word) for word in words] == [[45], [45]]
    assert refused(cu.cuGreenCtxRecordEvent(first, 0)) == "INVALID_HANDLE"


def a_graph_runs_where_it_was_captured_not_where_it_is_launched():
    gpu = Gpu()
    sets, sms = _Sets(gpu), _Sms(gpu)
    captured_in = (sets.streams[0], sets.plain)
    graphs = [_capture(stream, lambda s=stream: sms.launch(s)) for stream in captured_in]
    for graph, context in zip(graphs, (sets.contexts[0], gpu.context), strict=True):
        params = ok(cu.cuGraphKernelNodeGetParams(_only_node(graph)))
        assert int(params.ctx) == int(context)
    in_set, whole = map(_instantiate, graphs)
    for stream in (*sets.streams, sets.plain):
        assert sets.are_first(sms.of_graph(in_set, stream))
        assert len(sms.of_graph(whole, stream)) > sets.size


def streams_of_two_contexts_meet_in_one_graph():
    gpu = Gpu()
    sets, first, second = _Sets(gpu), _Sms(gpu), _Sms(gpu)
    fork, join = (ok(cu.cuEventCreate(0)) for _ in range(2))
    origin, other = sets.streams

    def work():
        ok(cu.cuEventRecord(fork, origin))
        ok(cu.cuStreamWaitEvent(other, fork, 0))
        first.launch(origin)
        second.launch(other)
        ok(cu.cuEventRecord(join, other))
        ok(cu.cuStreamWaitEvent(origin, join, 0))

    used = first.of_graph(_instantiate(_capture(origin, work)), sets.plain)
    assert sets.are_first(used)
    beside = second.read(sets.plain)
    assert 0 < len(beside) <= sets.size
    assert not used & beside


def a_node_runs_in_the_context_that_it_names():
    gpu = Gpu()
    sets, sms, kernel = _Sets(gpu), _Sms(gpu), _noting_kernel()
    named, current, around = (ok(cu.cuGraphCreate(0)) for _ in range(3))
    ok(cu.cuGraphAddKernelNode(named, [], 0, sms.node(kernel, sets.contexts[0])))
    ok(cu.cuCtxSetCurrent(sets.contexts[0]))
    ok(cu.cuGraphAddKernelNode(current, [], 0, sms.node(kernel, 0)))
    ok(cu.cuCtxSetCurrent(gpu.context))
    ok(cu.cuGraphAddChildGraphNode(around, [], 0, named))
    for graph in (named, current, around, ok(cu.cuGraphClone(named))):
        for stream in (sets.streams[1], sets.plain):
            assert sets.are_first(sms.of_graph(_instantiate(graph), stream))
    whole = _instantiate(_capture(sets.plain, lambda: sms.launch(sets.plain)))
    assert len(sms.of_graph(whole, sets.streams[0])) > sets.size


def new_parameters_leave_a_node_in_its_context():
    gpu = Gpu()
    sets, before, after = _Sets(gpu), _Sms(gpu), _Sms(gpu)
    graph = _capture(sets.streams[0], lambda: before.launch(sets.streams[0]))
    executable, node = _instantiate(graph), _only_node(graph)
    params = ok(cu.cuGraphKernelNodeGetParams(node))
    params.kernelParams = ((after.noted,), (None,))
    ok(cu.cuGraphExecKernelNodeSetParams(executable, node, params))
    ok(cu.cuGraphLaunch(executable, sets.plain))
    assert sets.are_first(after.read(sets.plain))
    again = _capture(sets.streams[0], lambda: before.launch(sets.streams[0]))
    ok(cu.cuGraphExecUpdate(executable, again))
    assert sets.are_first(before.of_graph(executable, sets.plain))


def what_a_condition_chooses_runs_in_its_context():
    gpu = Gpu()
    sets, sms, kernel = _Sets(gpu), _Sms(gpu), _noting_kernel()
    graph, context = ok(cu.cuGraphCreate(0)), sets.contexts[0]
    params = cu.CUgraphNodeParams()
    params.type = cu.CUgraphNodeType.CU_GRAPH_NODE_TYPE_CONDITIONAL
    params.conditional.handle = ok(cu.cuGraphConditionalHandleCreate(graph, context, 1, 1))
    params.conditional.type = cu.CUgraphConditionalNodeType.CU_GRAPH_COND_TYPE_IF
    params.conditional.size, params.conditional.ctx = 1, context
    data = [None] if cu.CUDA_VERSION >= 13000 else []
    ok(cu.cuGraphAddNode(graph, [], *data, 0, params))
    ok(cu.cuGraphAddKernelNode(params.conditional.phGraph_out[0], [], 0, sms.node(kernel, context)))
    assert sets.are_first(sms.of_graph(_instantiate(graph), sets.plain))
