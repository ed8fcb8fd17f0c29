"""Contexts, primary and made, and what a fork leaves of them."""

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
