"""Graphs on the software GPU: what overlaps, what it costs, and random graphs against a model."""

from pathlib import Path

import pytest

from tandem import softgpu

HERE = Path(__file__).parent

BUILD = """
gpu = Gpu()
graph = ok(cu.cuGraphCreate(0))
stream = ok(cu.cuStreamCreate(1))
def launch(times=1):
    executable = ok(cu.cuGraphInstantiate(graph, 0))
    for _ in range(times):
        ok(cu.cuGraphLaunch(executable, stream))
    ok(cu.cuStreamSynchronize(stream))
    return executable
"""


def overlaps(a: dict, b: dict) -> bool:
    return a["t_start_ns"] < b["t_end_ns"] and b["t_start_ns"] < a["t_end_ns"]


def test_branches_overlap_and_joins_wait_for_all_of_them(gpu):
    gpu.run(
        BUILD
        + """
words = [gpu.word(1) for _ in range(30)]
root = gpu.add_kernel(graph, [], words[0], 1, 0, slow=True)
branches = [gpu.add_kernel(graph, [root], word, 3, 0, slow=True) for word in words]
gpu.add_kernel(graph, branches, words[0], 1, 1, slow=True)
launch()
assert gpu.read(words[0]) == [4]
"""
    )

    root, *branches, join = sorted(gpu.timeline(), key=lambda row: row["t_start_ns"])
    assert {row["name"] for row in (root, join)} == {"slow_affine"}
    assert len(branches) == 30
    assert any(overlaps(a, b) for a in branches for b in branches if a is not b)
    assert root["t_end_ns"] <= min(row["t_start_ns"] for row in branches)
    assert join["t_start_ns"] >= max(row["t_end_ns"] for row in branches)


def test_a_chain_runs_in_the_stream_itself_without_gaps(gpu):
    gpu.run(
        BUILD
        + """
word, last = gpu.word(1), []
for _ in range(20):
    last = [gpu.add_kernel(graph, last, word, 1, 1, slow=True)]
launch(times=2)
assert gpu.read(word) == [41]
"""
    )

    rows = gpu.timeline()
    assert len({row["stream"] for row in rows}) == 1
    ends = [row["t_end_ns"] for row in rows[:-1]]
    assert [row["t_start_ns"] for row in rows[1:]] == ends


def test_two_executable_graphs_overlap_but_launches_of_one_do_not(gpu):
    gpu.run(
        BUILD
        + """
gpu.add_kernel(graph, [], gpu.word(1), 1, 1, slow=True)
one, two = (ok(cu.cuGraphInstantiate(graph, 0)) for _ in range(2))
streams = [ok(cu.cuStreamCreate(1)) for _ in range(3)]
for executable, stream in zip((one, two, one), streams):
    ok(cu.cuGraphLaunch(executable, stream))
ok(cu.cuCtxSynchronize())
"""
    )

    first, second, third = sorted(gpu.timeline(), key=lambda row: row["op"])
    assert overlaps(first, second)
    assert not overlaps(first, third)


def test_a_node_runs_at_its_own_priority_if_asked(gpu):
    gpu.run(
        BUILD
        + """
wide = cu.CUDA_KERNEL_NODE_PARAMS()
for i in range(4):
    node = gpu.add_kernel(graph, [], gpu.word(1), 1, i, slow=True)
    value = cu.CUkernelNodeAttrValue()
    value.priority = -5 if i == 3 else 0
    ok(cu.cuGraphKernelNodeSetAttribute(
        node, cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PRIORITY, value))
executable = ok(cu.cuGraphInstantiate(graph, 8))
ok(cu.cuGraphLaunch(executable, stream))
ok(cu.cuStreamSynchronize(stream))
print(ok(cu.cuGraphExecGetFlags(executable)))
"""
    )

    assert len({row["stream"] for row in gpu.timeline()}) == 4


@pytest.fixture(scope="session")
def countdown(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("kernels") / "countdown.so"
    softgpu.compile_kernels(HERE / "countdown.cu", path)
    return path


def test_a_body_repeats_while_its_kernels_say_so(gpu, countdown):
    gpu.run(
        BUILD
        + """
module = ok(cu.cuModuleLoadData(open(os.environ["COUNTDOWN"], "rb").read()))
word, sum_ = gpu.word(5), gpu.word(0)
handle = ok(cu.cuGraphConditionalHandleCreate(graph, gpu.context, 1, 1))
params = cu.CUgraphNodeParams()
params.type = cu.CUgraphNodeType.CU_GRAPH_NODE_TYPE_CONDITIONAL
params.conditional.handle, params.conditional.size = handle, 1
params.conditional.type = cu.CUgraphConditionalNodeType.CU_GRAPH_COND_TYPE_WHILE
params.conditional.ctx = gpu.context
node = ok(cu.cuGraphAddNode(graph, [], *[None][: cu.CUDA_VERSION >= 13000], 0, params))
body = params.conditional.phGraph_out[0]
step = cu.CUDA_KERNEL_NODE_PARAMS()
step.func = ok(cu.cuModuleGetFunction(module, b"countdown"))
step.gridDimX = step.gridDimY = step.gridDimZ = 1
step.blockDimX = step.blockDimY = step.blockDimZ = 1
step.kernelParams = ((word, int(handle)), (None, ctypes.c_ulonglong))
add = gpu.add_kernel(body, [], sum_, 1, 2, slow=True)
ok(cu.cuGraphAddKernelNode(body, [add], 1, step))
gpu.add_kernel(graph, [node], sum_, 10, 0)
executable = launch()
assert gpu.read(sum_) + gpu.read(word) == [100, 0]
ok(cu.cuMemsetD32(word, 2, 1))
ok(cu.cuGraphLaunch(executable, stream))
ok(cu.cuStreamSynchronize(stream))
assert gpu.read(sum_) == [1040]
""",
        COUNTDOWN=str(countdown),
    )

    names = [row["name"] for row in gpu.timeline()]
    assert names == ["slow_affine", "countdown"] * 5 + ["affine"] + [
        "slow_affine",
        "countdown",
    ] * 2 + ["affine"]


def test_a_fault_in_a_graph_ends_the_context_and_what_waits_for_it(gpu):
    gpu.run(
        BUILD
        + """
hole = ok(cu.cuMemAddressReserve(2 << 20, 0, 0, 0))
first = gpu.add_kernel(graph, [], hole, 1, 1)
gpu.add_kernel(graph, [first], gpu.word(1), 1, 1)
gpu.add_kernel(graph, [], gpu.word(1), 1, 1, slow=True)
executable = ok(cu.cuGraphInstantiate(graph, 0))
ok(cu.cuGraphLaunch(executable, stream))
assert refused(cu.cuStreamSynchronize(stream)) == "ILLEGAL_ADDRESS"
assert refused(cu.cuGraphLaunch(executable, stream)) == "ILLEGAL_ADDRESS"
ok(cu.cuGraphExecDestroy(executable))
ok(cu.cuGraphDestroy(graph))
"""
    )


def test_stale_handles_are_refused(gpu):
    gpu.run(
        BUILD
        + """
node = gpu.add_kernel(graph, [], gpu.word(1), 1, 1)
executable = launch()
ok(cu.cuGraphExecDestroy(executable))
ok(cu.cuGraphDestroy(graph))
params = gpu.kernel_node(gpu.word(1), 1, 1)
for result in (
    cu.cuGraphDestroy(graph),
    cu.cuGraphDestroyNode(node),
    cu.cuGraphNodeGetType(node),
    cu.cuGraphGetNodes(graph),
    cu.cuGraphInstantiate(graph, 0),
    cu.cuGraphLaunch(executable, stream),
    cu.cuGraphExecDestroy(executable),
    cu.cuGraphKernelNodeSetParams(node, params),
    cu.cuGraphExecKernelNodeSetParams(executable, node, params),
):
    assert refused(result) == "INVALID_VALUE"
kept = ok(cu.cuGraphCreate(0))
gpu.add_kernel(kept, [], gpu.word(1), 1, 1)
executable = ok(cu.cuGraphInstantiate(kept, 0))
ok(cu.cuModuleUnload(gpu.module))
assert refused(cu.cuGraphLaunch(executable, stream)) == "INVALID_HANDLE"
"""
    )


def test_a_destroyed_context_leaves_nothing_behind(gpu):
    gpu.run(
        BUILD
        + """
context = ok(cu.cuCtxCreate(*[None][: cu.CUDA_VERSION >= 13000], 0, gpu.device))
stream = ok(cu.cuStreamCreate(1))
words = [gpu.word(1) for _ in range(3)]
module = ok(cu.cuModuleLoadData(open(os.environ["TEST_IMAGE"], "rb").read()))
gpu.module = module
for word in words:
    gpu.add_kernel(graph, [], word, 1, 1, slow=True)
executable = ok(cu.cuGraphInstantiate(graph, 0))
ok(cu.cuGraphLaunch(executable, stream))
open_ = ok(cu.cuStreamCreate(1))
ok(cu.cuStreamBeginCapture(open_, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
ok(cu.cuCtxDestroy(context))
ok(cu.cuCtxSetCurrent(gpu.context))
assert refused(cu.cuGraphLaunch(executable, 0)) == "CONTEXT_IS_DESTROYED"
ok(cu.cuGraphExecDestroy(executable))
ok(cu.cuMemAlloc(4))
"""
    )


# Nodes multiply, fill and copy words. For the model a node follows the last node that touched its
# words; more edges than needed change nothing.
RANDOM_GRAPHS = """
from hypothesis import given, settings, strategies as st

gpu = Gpu()
words = [gpu.word(i) for i in range(4)]
streams = [ok(cu.cuStreamCreate(1)), ok(cu.cuStreamCreate(0)), 0]
index = st.integers(0, 3)
node = st.tuples(
    st.sampled_from(["affine", "slow", "fill", "copy", "empty"]), index, index,
    st.lists(st.integers(0, 30), max_size=3),
)

def copy(to, source):
    params = cu.CUDA_MEMCPY3D()
    device = cu.CUmemorytype.CU_MEMORYTYPE_DEVICE
    params.srcMemoryType = params.dstMemoryType = device
    params.srcDevice, params.dstDevice = source, to
    params.WidthInBytes, params.Height, params.Depth = 4, 1, 1
    return params

def fill(to, value):
    params = cu.CUDA_MEMSET_NODE_PARAMS()
    params.dst, params.value, params.elementSize, params.width, params.height = to, value, 4, 1, 1
    return params

def add(graph, number, kind, a, b, after):
    if kind == "empty":
        return ok(cu.cuGraphAddEmptyNode(graph, after, len(after)))
    if kind == "copy":
        params = copy(words[a], words[b])
        return ok(cu.cuGraphAddMemcpyNode(graph, after, len(after), params, gpu.context))
    if kind == "fill":
        params = fill(words[a], number)
        return ok(cu.cuGraphAddMemsetNode(graph, after, len(after), params, gpu.context))
    return gpu.add_kernel(graph, after, words[a], 3, number, slow=kind == "slow")

def build(graph, nodes):
    made, last = [], {}
    for number, (kind, a, b, extra) in enumerate(nodes):
        touched = {"empty": (), "copy": (a, b)}.get(kind, (a,))
        before = {last[word] for word in touched if word in last}
        before |= {i % number for i in extra if number}
        made.append(add(graph, number, kind, a, b, [made[i] for i in sorted(before)]))
        last.update((word, number) for word in touched)

def compute(values, nodes):
    for number, (kind, a, b, _) in enumerate(nodes):
        if kind == "copy":
            values[a] = values[b]
        elif kind == "fill":
            values[a] = number
        elif kind != "empty":
            values[a] = (values[a] * 3 + number) % 2**32

launches = st.lists(st.integers(0, 2), min_size=1, max_size=3)

@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(st.lists(node, max_size=31), st.booleans(), launches)
def check(nodes, nested, launches):
    values = [gpu.read(word)[0] for word in words]
    graph = ok(cu.cuGraphCreate(0))
    build(graph, nodes)
    if nested:
        outer = ok(cu.cuGraphCreate(0))
        ok(cu.cuGraphAddChildGraphNode(outer, [], 0, graph))
        ok(cu.cuGraphDestroy(graph))
        graph = outer
    executable = ok(cu.cuGraphInstantiate(graph, 0))
    ok(cu.cuGraphDestroy(graph))
    for which in launches:
        ok(cu.cuGraphLaunch(executable, streams[which]))
        compute(values, nodes)
    ok(cu.cuGraphExecDestroy(executable))
    ok(cu.cuCtxSynchronize())
    assert [gpu.read(word)[0] for word in words] == values

check()
"""


@pytest.mark.slow
def test_random_graphs_compute_what_the_model_says(gpu):
    gpu.run(RANDOM_GRAPHS)
