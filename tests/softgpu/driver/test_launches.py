"""The effect of launch attributes on the modelled device: which kernel gets SMs, and when."""

SLOW = """
gpu = Gpu()
word = gpu.word(1)
def launch(grid, *, stream=0, shared=0, **attribute):
    config = cu.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = grid, 1, 1
    config.blockDimX, config.blockDimY, config.blockDimZ = 1024, 1, 1
    config.sharedMemBytes, config.hStream = shared, stream
    config.attrs = []
    for name, value in attribute.items():
        one = cu.CUlaunchAttribute()
        one.id = getattr(cu.CUlaunchAttributeID, "CU_LAUNCH_ATTRIBUTE_" + name.upper())
        if name == "cluster_dimension":
            one.value.clusterDim.x, one.value.clusterDim.y, one.value.clusterDim.z = value, 1, 1
        else:
            setattr(one.value, name, value)
        config.attrs = [one]
    config.numAttrs = len(config.attrs)
    types = (None, ctypes.c_uint, ctypes.c_uint)
    ok(cu.cuLaunchKernelEx(config, gpu.function("slow_affine"), ((word, 1, 1), types), 0))
one, two = (ok(cu.cuStreamCreate(1)) for _ in range(2))
"""


def spans(gpu):
    """Return start, end and SMs at the start of each kernel, in the order of operations."""
    kernels = {}
    for row in gpu.timeline():
        start, _, sms = kernels.get(row["op"], (row["t_start_ns"], 0, row["sms"]))
        kernels[row["op"]] = (start, row["t_end_ns"], sms)
    return [kernels[op] for op in sorted(kernels)]


def test_an_urgent_launch_overtakes_in_a_stream_of_no_priority(gpu):
    gpu.run(
        SLOW
        + "launch(64, stream=one); launch(64, stream=two, priority=-5); ok(cu.cuCtxSynchronize())"
    )

    first, urgent = spans(gpu)

    assert urgent[0] < first[1]
    assert urgent[1] < first[1]
    assert urgent[2] == 8


def test_without_priority_the_second_launch_waits(gpu):
    gpu.run(SLOW + "launch(64, stream=one); launch(64, stream=two); ok(cu.cuCtxSynchronize())")

    first, second = spans(gpu)

    assert second[0] == first[1]


def test_a_stream_can_be_made_urgent_later(gpu):
    gpu.run(
        SLOW
        + """
value = cu.CUstreamAttrValue(); value.priority = -3
which = cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PRIORITY
ok(cu.cuStreamSetAttribute(two, which, value))
assert ok(cu.cuStreamGetAttribute(two, which)).priority == -3
launch(64, stream=one); launch(64, stream=two); ok(cu.cuCtxSynchronize())
"""
    )

    first, urgent = spans(gpu)

    assert urgent[1] < first[1]


def test_a_cooperative_grid_runs_side_by_side_or_not_at_all(gpu):
    gpu.run(
        SLOW
        + """
launch(8, stream=one); launch(16, stream=two, cooperative=1); ok(cu.cuCtxSynchronize())
launch(8, stream=one); launch(16, stream=two); ok(cu.cuCtxSynchronize())
"""
    )

    first, cooperative, third, ordinary = spans(gpu)

    assert first[2] == 4
    assert (cooperative[0], cooperative[2]) == (first[1], 8)
    assert (ordinary[0], ordinary[2]) == (third[0], 4)


def test_a_cluster_needs_its_blocks_side_by_side(gpu):
    gpu.run(
        SLOW
        + """
launch(14, stream=one); launch(8, stream=two, cluster_dimension=8); ok(cu.cuCtxSynchronize())
"""
    )

    first, cluster = spans(gpu)

    assert first[2] == 7
    assert (cluster[0], cluster[2]) == (first[1], 4)


def test_shared_memory_spreads_blocks_over_more_sms(gpu):
    gpu.run(
        SLOW
        + """
shared = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
ok(cu.cuFuncSetAttribute(gpu.function("slow_affine"), shared, 200 << 10))
launch(4); launch(4, shared=200 << 10); ok(cu.cuCtxSynchronize())
"""
    )

    plain, spread = spans(gpu)

    assert (plain[2], spread[2]) == (2, 4)


def test_under_mps_a_context_can_be_limited_to_some_sms(gpu):
    gpu.options["mode"] = "mps"
    gpu.run(
        """
ok(cu.cuInit(0))
kind = cu.CUexecAffinityType.CU_EXEC_AFFINITY_TYPE_SM_COUNT
assert ok(cu.cuDeviceGetExecAffinitySupport(kind, 0)) == 1
affinity = cu.CUexecAffinityParam(); affinity.type, affinity.param.smCount.val = kind, 2
params = cu.CUctxCreateParams()
params.execAffinityParams, params.numExecAffinityParams = [affinity], 1
made = ok(cu.cuCtxCreate(params, 0, 0))
assert ok(cu.cuCtxGetExecAffinity(kind)).param.smCount.val == 2
affinity.param.smCount.val = 99
params.execAffinityParams = [affinity]
assert refused(cu.cuCtxCreate(params, 0, 0)) == "INVALID_VALUE"
module = ok(cu.cuModuleLoadData(open(os.environ["TEST_IMAGE"], "rb").read()))
count_up = ok(cu.cuModuleGetFunction(module, b"count_up"))
ok(cu.cuLaunchKernel(count_up, 4096, 1, 1, 1, 1, 1, 0, 0, 0, 0)); ok(cu.cuCtxSynchronize())
most = 2 * ok(cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(count_up, 1024, 0))
ok(cu.cuLaunchCooperativeKernel(count_up, most, 1, 1, 1024, 1, 1, 0, 0, 0))
too_large = cu.cuLaunchCooperativeKernel(count_up, most + 1, 1, 1, 1024, 1, 1, 0, 0, 0)
assert refused(too_large) == "COOPERATIVE_LAUNCH_TOO_LARGE"
"""
    )

    assert spans(gpu)[0][2] == 2


def test_an_error_sticks_to_its_context_alone(gpu):
    gpu.options["faults"] = "launch:affine@1"
    gpu.run(
        """
gpu = Gpu()
first = ok(cu.cuCtxCreate(None, 0, gpu.device))
inner = Gpu.__new__(Gpu)
inner.module = ok(cu.cuModuleLoadData(open(os.environ["TEST_IMAGE"], "rb").read()))
word, event, stream = inner.word(1), ok(cu.cuEventCreate(0)), ok(cu.cuStreamCreate(0))
inner.affine(word, 1, 1)
for call in (
    cu.cuCtxSynchronize, cu.cuCtxSynchronize, lambda: cu.cuMemAlloc(16), lambda: cu.cuMemFree(word),
    lambda: cu.cuStreamCreate(0), lambda: cu.cuEventRecord(event, stream), cu.cuCtxGetFlags,
    lambda: cu.cuStreamSynchronize(stream), lambda: cu.cuModuleUnload(inner.module),
    lambda: cu.cuCtxGetLimit(cu.CUlimit.CU_LIMIT_STACK_SIZE),
):
    assert refused(call()) == "LAUNCH_FAILED", call
ok(cu.cuCtxPopCurrent()); ok(cu.cuDeviceGetCount()); ok(cu.cuDeviceTotalMem(0))
ok(cu.cuCtxSetCurrent(gpu.context))
assert gpu.read(gpu.word(7)) == [7]
ok(cu.cuCtxDestroy(first))
assert refused(cu.cuEventQuery(event)) == "INVALID_HANDLE"
gpu.affine(gpu.word(2), 1, 1); ok(cu.cuCtxSynchronize())
"""
    )
