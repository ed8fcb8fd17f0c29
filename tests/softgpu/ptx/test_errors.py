"""Errors in PTX programs, and what PTX programs print."""

from __future__ import annotations

import pytest
from runner import HEADER

pytest.importorskip("cuda.bindings")


@pytest.mark.parametrize(
    ("launch", "error"),
    [
        ('"control.trap", 1, 32', "LAUNCH_FAILED"),
        ('"cooperative.neighbours", 2, 32, x, x, ctypes.c_int(1)', "LAUNCH_FAILED"),
        ('"control.poke", 1, 1, POINTER(16), ctypes.c_int(4)', "ILLEGAL_ADDRESS"),
        ('"control.poke", 1, 1, POINTER(x.pointer + 2), ctypes.c_int(4)', "MISALIGNED_ADDRESS"),
        ('"control.poke", 1, 1, POINTER(x.pointer + 4), ctypes.c_int(8)', "MISALIGNED_ADDRESS"),
        ('"control.beyond_shared", 1, 32, ctypes.c_int(5000), x', "ILLEGAL_ADDRESS"),
        ('"control.check", 1, 32, x', "ASSERT"),
    ],
)
def test_a_kernel_that_does_wrong_ends_with_its_error(gpu, launch, error):
    child = gpu.run(f"""
x = OnDevice("i", [3] * 64)
ok(device.launch({launch}))
assert refused(cu.cuCtxSynchronize()) == "{error}"
assert refused(cu.cuMemAlloc(4)) == "{error}"
""")

    said = "control.cu:" in child.stderr and "Assertion `x[threadIdx.x] != 3" in child.stderr
    assert said == (error == "ASSERT")


def test_printf_is_written_when_the_program_synchronises(gpu):
    child = gpu.run("""
import os
ok(device.launch("control.print", 1, 32, ctypes.c_int(3)))
ok(device.launch("control.print", 1, 32, ctypes.c_int(0)))
os.write(1, b"before\\n")
ok(cu.cuCtxSynchronize())
os.write(1, b"after\\n")
""")

    assert child.stdout.splitlines() == [
        "before",
        "0  0.00 ab a 1099511627776 ff 100%",
        "1  1.50 cd b 1099511627776 ff 100%",
        "2  3.00 ab c 1099511627776 ff 100%",
        "after",
    ]


WRONG = {
    "wmma.load.a.sync.aligned.row.m16n16k16.f16 {%r1}, [%rd1], 16;": "line 5; instruction 'wmma.",
    "add.s32 %r1, %r1, %rd1;": "another width",
    "add.s32.sideways %r1, %r1, 1;": ".sideways",
    "bra NOWHERE;": "unknown label 'NOWHERE'",
    "mov.u32 %r1, unknown_name;": "unknown_name",
    "add.s32 %r1, %r1;": "too few operands",
    "call nobody;": "nobody",
    "ld.shared.u32 %r1, [%rd1": "expected ']'",
}


def test_what_is_not_understood_is_named_in_the_log(gpu):
    texts = [
        f"{HEADER}.entry k() {{ .reg .b32 %r<2>; .reg .b64 %rd<2>;\n{body}\nret; }}\0".encode()
        for body in WRONG
    ]
    child = gpu.run(
        f"""
options = [cu.CUjit_option.CU_JIT_ERROR_LOG_BUFFER,
           cu.CUjit_option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
for text in {texts!r}:
    log = bytes(1024)
    assert refused(cu.cuModuleLoadDataEx(text, 2, options, [log, len(log)])) == "INVALID_PTX"
    print(log.strip(b"\\0").decode().strip())
""",
        TANDEM_SOFTGPU_TRACE="1",
    )

    for said, logged, traced in zip(
        WRONG.values(), child.stdout.splitlines(), child.stderr.splitlines(), strict=True
    ):
        assert said in logged
        assert said in traced


@pytest.mark.parametrize(
    "waits",
    [
        "@%p bar.sync 1, 64;",
        "@%p barrier.cluster.arrive; @%p barrier.cluster.wait; @!%p bar.sync 1, 64;",
    ],
)
def test_a_barrier_that_nobody_can_pass_is_no_hang(gpu, waits):
    body = f"mov.u32 %r1, %tid.x; setp.lt.u32 %p, %r1, 32; {waits} ret;"
    text = f"{HEADER}.entry k() {{ .reg .b32 %r<2>; .reg .pred %p; {body} }}\0"
    gpu.run(f"""
device.modules["m"] = ok(cu.cuModuleLoadData({text.encode()!r}))
ok(device.launch("m.k", 1, 64))
assert refused(cu.cuCtxSynchronize()) == "LAUNCH_TIMEOUT"
""")


def test_libraries_and_attributes_show_what_the_ptx_says(gpu):
    gpu.run("""
from ptx_device import DATA
text = (DATA / "shared.ptx").read_bytes() + b"\\0"
library = ok(cu.cuLibraryLoadData(text, [], [], 0, [], [], 0))
kernel = ok(cu.cuLibraryGetKernel(library, b"matmul"))
attribute = cu.CUfunction_attribute
def of(which): return ok(cu.cuKernelGetAttribute(which, kernel, 0))
assert of(attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES) == 2 * 4 * 16 * 16
assert of(attribute.CU_FUNC_ATTRIBUTE_PTX_VERSION) == 80
assert [ok(cu.cuKernelGetParamInfo(kernel, i)) for i in range(4)] == [
    (0, 8), (8, 8), (16, 8), (24, 4)]
assert ok(cu.cuLibraryGetKernelCount(library)) == 8
""")
