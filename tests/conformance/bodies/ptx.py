"""PTX text that the driver compiles: what it computes, prints and refuses."""

from __future__ import annotations

import ctypes
from pathlib import Path

from cuda.bindings import driver as cu
from gpu import Gpu, address, ok, refused, u32

DATA = Path(__file__).resolve().parents[2] / "data" / "ptx"
POINTER, INT = ctypes.c_void_p, ctypes.c_int


def _module(name: str):
    Gpu()
    return ok(cu.cuModuleLoadData((DATA / f"{name}.ptx").read_bytes() + b"\0"))


def _launch(module, name: str, block: int, values, types):
    function = ok(cu.cuModuleGetFunction(module, name.encode()))
    return cu.cuLaunchKernel(function, 1, 1, 1, block, 1, 1, 0, 0, (values, types), 0)


def a_barrier_reduces_over_its_threads():
    module = _module("shared")
    memory = ok(cu.cuMemAlloc(4 * 99))
    values = u32(*[i % 3 for i in range(96)])
    ok(cu.cuMemcpyHtoD(memory, address(values), 4 * 96))
    out = int(memory) + 4 * 96
    ok(_launch(module, "barrier_reductions", 96, (int(memory), out), (POINTER, POINTER)))
    found = u32(0, 0, 0)
    ok(cu.cuMemcpyDtoH(address(found), out, 12))
    assert found.tolist() == [64, 0, 1]


def variables_of_a_module_are_memory_with_a_name():
    module = _module("control")
    counter, size = ok(cu.cuModuleGetGlobal(module, b"counter"))
    table, table_size = ok(cu.cuModuleGetGlobal(module, b"table"))
    assert (size, table_size) == (4, 16)
    word = u32(0)
    ok(cu.cuMemcpyDtoH(address(word), counter, 4))
    assert word.tolist() == [5]
    entries = u32(11, 12, 13, 14)
    ok(cu.cuMemcpyHtoD(table, address(entries), 16))
    out = ok(cu.cuMemAlloc(16))
    ok(_launch(module, "variables", 4, (int(out),), (POINTER,)))
    found = u32(0, 0, 0, 0)
    ok(cu.cuMemcpyDtoH(address(found), out, 16))
    ok(cu.cuMemcpyDtoH(address(word), counter, 4))
    assert (found.tolist(), word.tolist()) == ([11, 12, 13, 14], [13])
    assert refused(cu.cuModuleGetGlobal(module, b"no_such_variable")) == "NOT_FOUND"


def a_function_shows_its_parameters_and_static_memory():
    function = ok(cu.cuModuleGetFunction(_module("shared"), b"matmul"))
    parameters = [ok(cu.cuFuncGetParamInfo(function, i)) for i in range(4)]
    assert parameters == [(0, 8), (8, 8), (16, 8), (24, 4)]
    attribute = cu.CUfunction_attribute
    shared = attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES
    assert ok(cu.cuFuncGetAttribute(shared, function)) >= 2 * 4 * 16 * 16
    assert ok(cu.cuFuncGetAttribute(attribute.CU_FUNC_ATTRIBUTE_PTX_VERSION, function)) == 80


def _fails(name: str, values, types, error: str) -> None:
    module = _module("control")
    ok(_launch(module, name, 1, values, types))
    assert refused(cu.cuCtxSynchronize()) == error
    assert refused(cu.cuMemAlloc(4)) == error  # the context stays in error


def an_address_that_is_nowhere_is_an_error():
    _fails("poke", (64, 4), (POINTER, INT), "ILLEGAL_ADDRESS")


def an_address_that_is_odd_is_an_error():
    Gpu()
    word = int(ok(cu.cuMemAlloc(16)))
    _fails("poke", (word + 2, 4), (POINTER, INT), "MISALIGNED_ADDRESS")


def a_failed_assertion_is_an_error():
    Gpu()
    three = ok(cu.cuMemAlloc(4))
    ok(cu.cuMemsetD32(three, 3, 1))
    _fails("check", (int(three),), (POINTER,), "ASSERT")
