"""Green contexts on the software GPU: which SMs they use, and what runs at the same time."""

import pytest

RESOURCES = """
SM = cu.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
gpu = Gpu()
whole = ok(cu.cuDeviceGetDevResource(gpu.device, SM))
def green(*parts):
    desc = ok(cu.cuDevResourceGenerateDesc(list(parts), len(parts)))
    return ok(cu.cuGreenCtxCreate(desc, gpu.device, 1))
def stream(part): return ok(cu.cuGreenCtxStreamCreate(green(part), 1, 0))
"""
GROUPS = """
Params = cu.CU_DEV_SM_RESOURCE_GROUP_PARAMS
def params(*wanted):
    made = []
    for sms, together, flags in wanted:
        one = Params()
        one.smCount, one.coscheduledSmCount, one.flags = sms, together, flags
        made.append(one)
    return made
def split(*wanted, groups=None):
    given = params(*wanted)
    return cu.cuDevSmResourceSplit(len(given) if groups is None else groups, whole, 0, given)
"""

GRAPHS = """
(a, b), _, rest = ok(cu.cuDevSmResourceSplitByCount(2, whole, 1, 2))
greens = [green(part) for part in (a, b)]
contexts = [ok(cu.cuCtxFromGreenCtx(one)) for one in greens]
streams = [ok(cu.cuGreenCtxStreamCreate(one, 1, 0)) for one in greens]
plain = ok(cu.cuStreamCreate(1))
RELAXED = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
word = gpu.word(1)
def capture(s):
    ok(cu.cuStreamBeginCapture(s, RELAXED))
    gpu.affine(word, 2, 1, stream=s, slow=True)
    return ok(cu.cuStreamEndCapture(s))
def instantiate(graph): return ok(cu.cuGraphInstantiate(graph, 0))
def node_of(graph): return ok(cu.cuGraphGetNodes(graph, 1))[0][0]
"""


def test_disjoint_green_contexts_run_side_by_side_and_one_set_is_shared(gpu):
    gpu.run(
        RESOURCES
        + """
(a, b), _, rest = ok(cu.cuDevSmResourceSplitByCount(2, whole, 1, 4))
streams = [stream(a), stream(b), stream(b)]
words = [gpu.word(1) for _ in streams]
for s, word in zip(streams, words): gpu.affine(word, 2, 1, stream=s, slow=True)
ok(cu.cuCtxSynchronize())
"""
    )

    first, beside, after = gpu.timeline()[-3:]
    assert first["sm_set"] == "0"
    assert beside["sm_set"] == "4"
    assert after["sm_set"] == "5"  # the set still has idle SMs
    assert first["t_start_ns"] == beside["t_start_ns"] == after["t_start_ns"]


def test_a_set_is_never_left(gpu):
    used = gpu.run(
        RESOURCES
        + """
(a, b), _, rest = ok(cu.cuDevSmResourceSplitByCount(2, whole, 1, 2))
noted = ok(cu.cuMemAlloc(4 * 256))
for part in (a, b, rest):
    s = stream(part)
    ok(gpu.launch("note_sm", (noted,), (None,), stream=s, grid=256))
    ok(cu.cuStreamSynchronize(s))
    print(part.sm.smCount, sorted(set(gpu.read(noted, 256))))
"""
    )

    assert used.splitlines() == ["2 [0, 1]", "2 [2, 3]", "4 [4, 5, 6, 7]"]
    assert [row["sm_set"] for row in gpu.timeline()] == ["0-1", "2-3", "4-7"]


@pytest.mark.parametrize(
    ("profile", "least", "groups", "fine"),
    [("h200", 8, 16, 66), ("a100", 4, 27, 54), ("rtx4090", 4, 32, 64), ("tiny", 8, 1, 4)],
)
def test_each_architecture_has_its_granularity(gpu, profile, least, groups, fine):
    gpu.options["profile"] = profile
    printed = gpu.run(
        RESOURCES
        + """
count = lambda flags: ok(cu.cuDevSmResourceSplitByCount(0, whole, flags, 1))[1]
print(whole.sm.minSmPartitionSize, count(0), count(1))
"""
    )

    assert printed == f"{least} {groups} {fine}"


def test_structured_splits_follow_their_parameters(gpu):
    gpu.options["profile"] = "h200"
    printed = gpu.run(
        RESOURCES
        + GROUPS
        + """
groups, rest = ok(split((16, 16, 0), (10, 2, 0)))
print([g.sm.smCount for g in groups], rest.sm.smCount, groups[0].sm.smCoscheduledAlignment)
groups, rest = ok(split((0, 16, 0)))
print([g.sm.smCount for g in groups], rest.sm.smCount)
groups, rest = ok(split((8, 4, 0), (0, 2, 1)))
print([g.sm.smCount for g in groups], rest.type == SM)
for wrong in ((17, 0, 0), (12, 8, 0), (8, 3, 0), (64, 64, 0), (134, 2, 0), (8, 8, 2)):
    print(refused(split(wrong)), end=" ")
print(refused(cu.cuDevSmResourceSplit(1, whole, 5, params((8, 8, 0)))))
"""
    )

    assert printed.splitlines() == [
        "[16, 10] 106 16",
        "[128] 4",
        "[8, 124] False",
        "INVALID_RESOURCE_CONFIGURATION " * 6 + "INVALID_VALUE",
    ]


def test_work_queues_are_a_resource_that_follows_the_setting(gpu):
    printed = gpu.run(
        RESOURCES
        + """
CONFIG = cu.CUdevResourceType.CU_DEV_RESOURCE_TYPE_WORKQUEUE_CONFIG
config = ok(cu.cuDeviceGetDevResource(gpu.device, CONFIG))
print(config.wqConfig.wqConcurrencyLimit)
config.wqConfig.wqConcurrencyLimit = 2
both = green(whole, config)
print(ok(cu.cuGreenCtxGetDevResource(both, CONFIG)).wqConfig.wqConcurrencyLimit)
print(ok(cu.cuGreenCtxGetDevResource(green(config), SM)).sm.smCount)
print(refused(cu.cuDevResourceGenerateDesc([config, config], 2)))
""",
        CUDA_DEVICE_MAX_CONNECTIONS="4",
    )

    assert printed.splitlines() == ["4", "2", "8", "INVALID_RESOURCE_CONFIGURATION"]


def test_stale_and_foreign_handles_are_refused(gpu):
    printed = gpu.run(
        RESOURCES
        + """
def bad(*results): print(*(refused(r) for r in results))
one = green(whole)
context = ok(cu.cuCtxFromGreenCtx(one))
bad(cu.cuCtxSetCurrent(int(one)), cu.cuGreenCtxDestroy(int(context)), cu.cuCtxDestroy(context))
ok(cu.cuCtxSetCurrent(context))
bad(cu.cuStreamSynchronize(cu.CU_STREAM_PER_THREAD))
ok(cu.cuGreenCtxDestroy(one))
bad(cu.cuGreenCtxDestroy(one), cu.cuCtxFromGreenCtx(one), cu.cuMemAlloc(16),
    cu.cuCtxSetCurrent(context), cu.cuGreenCtxCreate(1234, gpu.device, 0))
two = green(whole)
ok(cu.cuCtxSetCurrent(gpu.context))
s = ok(cu.cuGreenCtxStreamCreate(two, 1, 0))
ok(cu.cuDevicePrimaryCtxReset(gpu.device))
bad(cu.cuGreenCtxDestroy(two), cu.cuGreenCtxStreamCreate(two, 1, 0))
"""
    )

    assert printed.splitlines() == [
        "INVALID_CONTEXT INVALID_CONTEXT INVALID_CONTEXT",
        "INVALID_HANDLE",
        "INVALID_CONTEXT INVALID_CONTEXT CONTEXT_IS_DESTROYED INVALID_CONTEXT INVALID_VALUE",
        "INVALID_CONTEXT INVALID_CONTEXT",
    ]


def test_green_contexts_of_a_client_do_not_take_turns_but_other_clients_do(gpu):
    gpu.options["start_clients"] = "2"
    program = (
        RESOURCES
        + """
(a, b), _, rest = ok(cu.cuDevSmResourceSplitByCount(2, whole, 1, 4))
for part in (a, b): gpu.affine(gpu.word(1), 2, 1, stream=stream(part), slow=True)
ok(cu.cuCtxSynchronize())
"""
    )
    children = [gpu.start(program) for _ in range(2)]
    for child in children:
        err = child.communicate(timeout=60)[1]
        assert child.returncode == 0, err

    rows = gpu.timeline()
    for row in rows:
        others = [r for r in rows if r["pid"] != row["pid"]]
        assert all(
            r["t_end_ns"] <= row["t_start_ns"] or r["t_start_ns"] >= row["t_end_ns"] for r in others
        )


def test_a_graph_in_two_sets_runs_in_both_at_once_and_is_awaited_where_it_was_launched(gpu):
    printed = gpu.run(
        RESOURCES
        + GRAPHS
        + """
both, last = ok(cu.cuGraphCreate(0)), gpu.word(1)
for s in streams: ok(cu.cuGraphAddChildGraphNode(both, [], 0, capture(s)))
gpu.affine(last, 3, 0, stream=plain, slow=True)
ok(cu.cuGraphLaunch(instantiate(both), plain))
gpu.affine(last, 5, 0, stream=plain)
ok(cu.cuStreamSynchronize(plain))
print(gpu.read(last))
"""
    )

    before, *in_sets, after = gpu.timeline()[-4:]
    assert {row["sm_set"] for row in in_sets} == {"0", "2"}
    assert {row["t_start_ns"] for row in in_sets} == {before["t_end_ns"]}
    assert after["t_start_ns"] == in_sets[0]["t_end_ns"]
    assert printed == "[15]"


def test_copies_and_fills_name_the_context_they_were_captured_in(gpu):
    printed = gpu.run(
        RESOURCES
        + GRAPHS
        + """
other = gpu.word(2)
def work(s):
    ok(cu.cuMemsetD32Async(word, 3, 1, s))
    ok(cu.cuMemcpyDtoDAsync(other, word, 4, s))
for s, context in ((streams[0], contexts[0]), (plain, gpu.context)):
    ok(cu.cuStreamBeginCapture(s, RELAXED))
    work(s)
    graph = ok(cu.cuStreamEndCapture(s))
    fill, copy = ok(cu.cuGraphGetNodes(graph, 2))[0]
    made = instantiate(graph)
    params = ok(cu.cuGraphMemsetNodeGetParams(fill))
    params.value = 7
    ok(cu.cuGraphExecMemsetNodeSetParams(made, fill, params, context))
    print(refused(cu.cuGraphExecMemsetNodeSetParams(made, fill, params, contexts[1])))
    ok(cu.cuGraphLaunch(made, plain))
    ok(cu.cuStreamSynchronize(plain))
    print(gpu.read(other))
"""
    )

    assert printed.splitlines() == ["INVALID_VALUE", "[7]"] * 2


def test_an_executable_node_does_not_change_its_context(gpu):
    printed = gpu.run(
        RESOURCES
        + GRAPHS
        + """
graph = capture(streams[0])
made = instantiate(graph)
print(refused(cu.cuGraphExecUpdate(made, capture(streams[1]))))
image = __import__("pathlib").Path(__import__("os").environ["TEST_IMAGE"]).read_bytes()
library = ok(cu.cuLibraryLoadData(image, [], [], 0, [], [], 0))
named = gpu.kernel_node(word, 2, 1)
named.func, named.kern = 0, ok(cu.cuLibraryGetKernel(library, b"affine"))
named.ctx = contexts[1]
print(refused(cu.cuGraphExecKernelNodeSetParams(made, node_of(graph), named)))
named.ctx = contexts[0]
ok(cu.cuGraphExecKernelNodeSetParams(made, node_of(graph), named))
ok(cu.cuGraphLaunch(made, plain))
ok(cu.cuStreamSynchronize(plain))
"""
    )

    assert printed.splitlines() == ["GRAPH_EXEC_UPDATE_FAILURE", "INVALID_VALUE"]
    assert gpu.timeline()[-1]["sm_set"] == "0"


def test_a_function_says_nothing_of_a_green_context_and_leaves_a_node_where_it_is(gpu):
    gpu.run(
        RESOURCES
        + GRAPHS
        + """
def run(graph):
    ok(cu.cuGraphLaunch(instantiate(graph), streams[1]))
    ok(cu.cuCtxSynchronize())
added = ok(cu.cuGraphCreate(0))
params = gpu.kernel_node(word, 2, 1)
params.ctx = contexts[0]
ok(cu.cuGraphAddKernelNode(added, [], 0, params))
run(added)
captured = capture(streams[1])
ok(cu.cuGraphKernelNodeSetParams(node_of(captured), params))
run(captured)
"""
    )

    assert [row["sm_set"] for row in gpu.timeline()[-2:]] == ["0", "2"]


def test_a_graph_is_not_launched_once_a_context_of_its_nodes_is_gone(gpu):
    printed = gpu.run(
        RESOURCES
        + GRAPHS
        + """
gone, kept = (instantiate(capture(s)) for s in (streams[0], plain))
for made in (gone, kept): ok(cu.cuGraphLaunch(made, plain))
ok(cu.cuGreenCtxDestroy(greens[0]))
print(refused(cu.cuGraphLaunch(gone, plain)))
ok(cu.cuGraphLaunch(kept, streams[1]))
ok(cu.cuCtxSynchronize())
print(gpu.read(word))
for made in (gone, kept): ok(cu.cuGraphExecDestroy(made))
"""
    )

    assert printed.splitlines() == ["CONTEXT_IS_DESTROYED", "[15]"]
