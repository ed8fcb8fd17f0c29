"""What PTX programs do wrong, what they print, and what they cost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tandem import softgpu

pytest.importorskip("cuda.bindings")

HERE = Path(__file__).parent
PREAMBLE = """
import ctypes
from cuda.bindings import driver as cu
from ptx_device import POINTER, Device, OnDevice, ok, refused
device = Device()
"""
HEADER = ".version 8.0\n.target sm_80\n.address_size 64\n"


@dataclass
class Runner:
    folder: Path

    def run(self, program: str, **more: str) -> subprocess.CompletedProcess[str]:
        base = {**os.environ, "PYTHONPATH": str(HERE), **more}
        env = softgpu.environment(
            base,
            folder=self.folder,
            clock="virtual",
            profile="tiny",
            timeline=self.folder / "timeline.jsonl",
        )
        command = [sys.executable, "-c", PREAMBLE + program]
        child = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert child.returncode == 0, child.stderr
        return child

    def kernels(self) -> list[dict]:
        rows = map(json.loads, (self.folder / "timeline.jsonl").read_text().splitlines())
        return [row for row in rows if row["kind"] == "kernel"]


@pytest.fixture
def gpu(tmp_path) -> Runner:
    return Runner(tmp_path)


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


def test_a_kernel_lasts_as_long_as_what_it_did_costs(gpu):
    # tiny: 1 byte a ns of memory, 8 SMs of 1 flop a ns each.
    gpu.run("""
n = 4096
a, b, c = (OnDevice("f", [1.0] * n) for _ in "abc")
device.run("elementwise.vector_add", n // 256, 256, a, b, c, ctypes.c_int(n))
device.run("elementwise.vector_add", n // 256, 256, a, b, c, ctypes.c_int(n // 2))
bodies, forces = OnDevice("f", [1.0] * 1024), OnDevice("f", [0.0] * 768)
device.run("numeric.nbody", 2, 128, bodies, forces, ctypes.c_int(256), shared=16 * 128)
""")
    first, half, nbody = gpu.kernels()

    assert first["bytes"] == 3 * 4 * 4096 == first["t_end_ns"] - first["t_start_ns"]
    assert half["bytes"] == first["bytes"] // 2
    # Both blocks fit on one SM: 256 threads with 256 others each, 18 flops a pair.
    assert nbody["t_end_ns"] - nbody["t_start_ns"] == 256 * 256 * 18


def test_clocks_tell_the_time_of_the_virtual_clock(gpu):
    body = """ld.param.u64 %rd1, [x]; mov.u64 %rd2, %globaltimer; st.global.u64 [%rd1], %rd2;
mov.u64 %rd2, %clock64; add.u64 %rd4, %rd2, 1; mov.u64 %rd3, %clock64;
sub.u64 %rd3, %rd3, %rd2; st.global.u64 [%rd1+8], %rd3;
WAIT: mov.u64 %rd3, %clock64; sub.u64 %rd3, %rd3, %rd2; setp.lt.u64 %p, %rd3, 50000;
@%p bra WAIT; ret;"""
    text = f"{HEADER}.entry k(.param .u64 x) {{ .reg .b64 %rd<5>; .reg .pred %p; {body} }}\0"
    child = gpu.run(f"""
device.modules["m"] = ok(cu.cuModuleLoadData({text.encode()!r}))
x = OnDevice("Q", [0] * 2)
for _ in range(2):
    device.run("m.k", 1, 1, x)
    print(*x.read())
""")

    told = [tuple(map(int, line.split())) for line in child.stdout.splitlines()]
    assert told == [(kernel["t_start_ns"] + 2, 2) for kernel in gpu.kernels()]


# The first thread of each block sleeps and writes down when it began; behind the barrier the last
# one writes down when it ended.
SLEEPER = f"""{HEADER}.entry k(.param .u64 times, .param .u32 nap) {{
.reg .b32 %r<5>; .reg .b64 %rd<4>; .reg .pred %p;
ld.param.u64 %rd1, [times]; ld.param.u32 %r1, [nap];
mov.u32 %r2, %ctaid.x; mul.wide.u32 %rd2, %r2, 16; add.s64 %rd1, %rd1, %rd2;
mov.u32 %r3, %tid.x; mov.u32 %r4, %ntid.x; sub.u32 %r4, %r4, 1;
setp.ne.u32 %p, %r3, 0; @%p bra MEET;
mov.u64 %rd3, %globaltimer; st.global.u64 [%rd1], %rd3; nanosleep.u32 %r1;
MEET: bar.sync 0;
setp.ne.u32 %p, %r3, %r4; @%p bra END;
mov.u64 %rd3, %globaltimer; st.global.u64 [%rd1+8], %rd3;
END: ret; }}\0"""


@pytest.mark.parametrize(("nap", "lasts"), [(400_000, 400_000), (3_000_000, 1_000_000)])
def test_a_kernel_lasts_as_long_as_its_blocks_sleep(gpu, nap, lasts):
    # tiny holds 64 blocks of 256 threads: the last one begins when the first has ended.
    child = gpu.run(f"""
device.modules["m"] = ok(cu.cuModuleLoadData({SLEEPER.encode()!r}))
times = OnDevice("Q", [0] * 130)
device.run("m.k", 65, 256, times, ctypes.c_uint(0))
device.run("m.k", 65, 256, times, ctypes.c_uint({nap}))
print(*times.read())
""")
    awake, asleep = gpu.kernels()
    told = [*map(int, child.stdout.split())]
    begins, ends = told[::2], told[1::2]
    few = 50  # instructions, of a nanosecond each

    assert awake["t_end_ns"] - awake["t_start_ns"] == awake["bytes"]
    assert 0 <= asleep["t_end_ns"] - asleep["t_start_ns"] - 2 * lasts < 2 * few
    assert all(0 < begin - asleep["t_start_ns"] < few for begin in begins[:64])
    assert all(0 <= end - begin - lasts < few for begin, end in zip(begins, ends, strict=True))
    assert 0 <= begins[64] - min(ends[:64]) < few


def test_strided_accesses_cost_whole_sectors(gpu):
    body = "mul.wide.u32 %rd2, %r1, 128; add.s64 %rd1, %rd1, %rd2; ld.global.u8 %r1, [%rd1]; ret;"
    text = f"""{HEADER}.entry k(.param .u64 x) {{ .reg .b32 %r<2>; .reg .b64 %rd<3>;
ld.param.u64 %rd1, [x]; mov.u32 %r1, %tid.x; {body} }}\0"""
    gpu.run(f"""
device.modules["m"] = ok(cu.cuModuleLoadData({text.encode()!r}))
device.run("m.k", 1, 64, OnDevice("B", bytes(64 * 128)))
""")

    assert gpu.kernels()[0]["bytes"] == 64 * 32


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
