"""Primary contexts, created contexts, and what a fork leaves of them."""

from __future__ import annotations

import os
import threading

from cuda.bindings import driver as cu
from gpu import Gpu, ok, outside, refused


def the_primary_context_is_shared_and_counted():
    gpu = Gpu()
    again = ok(cu.cuDevicePrimaryCtxRetain(gpu.device))
    assert int(again) == int(gpu.context)
    assert ok(cu.cuDevicePrimaryCtxGetState(gpu.device))[1] == 1
    ok(cu.cuDevicePrimaryCtxRelease(gpu.device))
    assert ok(cu.cuDevicePrimaryCtxGetState(gpu.device))[1] == 1
    ok(cu.cuDevicePrimaryCtxRelease(gpu.device))
    assert ok(cu.cuDevicePrimaryCtxGetState(gpu.device))[1] == 0


def contexts_form_a_stack_in_each_thread():
    gpu = Gpu()
    made = ok(cu.cuCtxCreate(None, 0, gpu.device))
    assert int(ok(cu.cuCtxGetCurrent())) == int(made)
    assert int(ok(cu.cuCtxPopCurrent())) == int(made)
    assert int(ok(cu.cuCtxGetCurrent())) == int(gpu.context)
    ok(cu.cuCtxPushCurrent(made))
    seen = []
    other = threading.Thread(target=lambda: seen.append(int(ok(cu.cuCtxGetCurrent()))))
    other.start()
    other.join()
    assert seen == [0]
    ok(cu.cuCtxDestroy(made))
    assert int(ok(cu.cuCtxGetCurrent())) == int(gpu.context)


def a_new_context_leaves_nothing_behind():
    gpu = Gpu()
    before = ok(cu.cuMemGetInfo())[0]
    made = ok(cu.cuCtxCreate(None, 0, gpu.device))
    ok(cu.cuMemAlloc(64 << 20))
    ok(cu.cuStreamCreate(0))
    ok(cu.cuCtxDestroy(made))
    assert ok(cu.cuMemGetInfo())[0] == before
    assert refused(cu.cuCtxSetCurrent(made)) in ("INVALID_CONTEXT", "CONTEXT_IS_DESTROYED")


def a_fork_child_cannot_use_the_driver_of_its_parent():
    Gpu()
    child = os.fork()
    if child == 0:
        os._exit(0 if refused(cu.cuMemGetInfo()) == "NOT_INITIALIZED" else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    ok(cu.cuMemGetInfo())


def a_fork_before_the_first_call_starts_fresh():
    child = os.fork()
    gpu = Gpu()
    assert gpu.read(gpu.word(3)) == [3]
    if child == 0:
        os._exit(0)
    with outside():
        status = os.waitpid(child, 0)[1]
    assert os.waitstatus_to_exitcode(status) == 0


FLAGS = cu.CUctx_flags


def context_flags_are_checked_and_remembered():
    gpu = Gpu()
    both = FLAGS.CU_CTX_SCHED_SPIN | FLAGS.CU_CTX_SCHED_YIELD
    assert refused(cu.cuCtxCreate(None, both, gpu.device)) == "INVALID_VALUE"
    assert refused(cu.cuCtxCreate(None, 1 << 20, gpu.device)) == "INVALID_VALUE"
    assert refused(cu.cuCtxCreate(None, 0, 99)) == "INVALID_DEVICE"
    mask = FLAGS.CU_CTX_SCHED_MASK
    made = ok(cu.cuCtxCreate(None, FLAGS.CU_CTX_SCHED_YIELD, gpu.device))
    assert ok(cu.cuCtxGetFlags()) & mask == FLAGS.CU_CTX_SCHED_YIELD
    ok(cu.cuCtxSetFlags(FLAGS.CU_CTX_SCHED_BLOCKING_SYNC))
    assert ok(cu.cuCtxGetFlags()) & mask == FLAGS.CU_CTX_SCHED_BLOCKING_SYNC
    assert refused(cu.cuCtxSetFlags(both)) == "INVALID_VALUE"
    assert ok(cu.cuCtxGetApiVersion(made)) >= 3020
    assert ok(cu.cuCtxGetId(made)) != ok(cu.cuCtxGetId(gpu.context))
    ok(cu.cuDevicePrimaryCtxSetFlags(gpu.device, FLAGS.CU_CTX_SCHED_SPIN))
    flags, active = ok(cu.cuDevicePrimaryCtxGetState(gpu.device))
    assert flags & mask == FLAGS.CU_CTX_SCHED_SPIN
    assert active == 1
    assert refused(cu.cuDevicePrimaryCtxSetFlags(gpu.device, both)) == "INVALID_VALUE"


def limits_are_kept_for_each_context():
    gpu = Gpu()
    limit = cu.CUlimit
    ok(cu.cuCtxSetLimit(limit.CU_LIMIT_STACK_SIZE, 4096))
    assert ok(cu.cuCtxGetLimit(limit.CU_LIMIT_STACK_SIZE)) == 4096
    ok(cu.cuCtxSetLimit(limit.CU_LIMIT_MALLOC_HEAP_SIZE, 32 << 20))
    assert ok(cu.cuCtxGetLimit(limit.CU_LIMIT_MALLOC_HEAP_SIZE)) >= 32 << 20
    ok(cu.cuCtxSetLimit(limit.CU_LIMIT_MAX_L2_FETCH_GRANULARITY, 128))
    assert ok(cu.cuCtxGetLimit(limit.CU_LIMIT_MAX_L2_FETCH_GRANULARITY)) <= 128
    assert ok(cu.cuCtxGetLimit(limit.CU_LIMIT_PRINTF_FIFO_SIZE)) > 0
    config = cu.CUfunc_cache.CU_FUNC_CACHE_PREFER_L1
    ok(cu.cuCtxSetCacheConfig(config))
    assert ok(cu.cuCtxGetCacheConfig()) == config
    ok(cu.cuCtxResetPersistingL2Cache())
    ok(cu.cuCtxCreate(None, 0, gpu.device))
    assert ok(cu.cuCtxGetLimit(limit.CU_LIMIT_STACK_SIZE)) != 4096


def a_reset_primary_context_is_inactive_but_still_held():
    gpu = Gpu()
    stream = ok(cu.cuStreamCreate(0))
    word = gpu.word(1)
    gpu.affine(word, 3, 1, stream=stream, slow=True)
    ok(cu.cuDevicePrimaryCtxReset(gpu.device))
    assert ok(cu.cuDevicePrimaryCtxGetState(gpu.device))[1] == 0
    again = ok(cu.cuDevicePrimaryCtxRetain(gpu.device))
    ok(cu.cuCtxSetCurrent(again))
    assert gpu.read(gpu.word(5)) == [5]
    ok(cu.cuDevicePrimaryCtxRelease(gpu.device))
    assert ok(cu.cuDevicePrimaryCtxGetState(gpu.device))[1] == 1
    ok(cu.cuDevicePrimaryCtxRelease(gpu.device))
    assert ok(cu.cuDevicePrimaryCtxGetState(gpu.device))[1] == 0
    assert refused(cu.cuDevicePrimaryCtxRelease(gpu.device)) == "INVALID_CONTEXT"


def a_context_destroyed_elsewhere_stays_current_but_unusable():
    gpu = Gpu()
    made = ok(cu.cuCtxCreate(None, 0, gpu.device))
    seen = []

    def destroy():
        ok(cu.cuCtxDestroy(made))
        seen.append(int(ok(cu.cuCtxGetCurrent())))

    other = threading.Thread(target=destroy)
    other.start()
    with outside():
        other.join()
    assert seen == [0]
    assert int(ok(cu.cuCtxGetCurrent())) == int(made)
    assert refused(cu.cuMemAlloc(16)) == "CONTEXT_IS_DESTROYED"
    ok(cu.cuCtxPopCurrent())
    assert int(ok(cu.cuCtxGetCurrent())) == int(gpu.context)


def execution_affinity_needs_mps():
    gpu = Gpu()
    kind = cu.CUexecAffinityType.CU_EXEC_AFFINITY_TYPE_SM_COUNT
    if ok(cu.cuDeviceGetExecAffinitySupport(kind, gpu.device)):
        return
    params = cu.CUctxCreateParams()
    affinity = cu.CUexecAffinityParam()
    affinity.type, affinity.param.smCount.val = kind, 2
    params.execAffinityParams, params.numExecAffinityParams = [affinity], 1
    assert refused(cu.cuCtxCreate(params, 0, gpu.device)) == "UNSUPPORTED_EXEC_AFFINITY"


def a_stream_has_attributes():
    gpu = Gpu()
    ids = cu.CUlaunchAttributeID
    stream = ok(cu.cuStreamCreateWithPriority(0, -1))
    priority = ok(cu.cuStreamGetAttribute(stream, ids.CU_LAUNCH_ATTRIBUTE_PRIORITY))
    assert priority.priority == -1
    policy = cu.CUstreamAttrValue()
    policy.syncPolicy = cu.CUsynchronizationPolicy.CU_SYNC_POLICY_BLOCKING_SYNC
    which = ids.CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY
    ok(cu.cuStreamSetAttribute(stream, which, policy))
    other = ok(cu.cuStreamCreate(0))
    ok(cu.cuStreamCopyAttributes(other, stream))
    assert ok(cu.cuStreamGetAttribute(other, which)).syncPolicy == policy.syncPolicy
    wrong = cu.cuStreamGetAttribute(stream, ids.CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
    assert refused(wrong) == "INVALID_VALUE"
    assert gpu.read(gpu.word(1)) == [1]
