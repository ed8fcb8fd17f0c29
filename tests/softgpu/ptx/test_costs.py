"""How long PTX programs take, by the clocks they read and by the timeline."""

from __future__ import annotations

import pytest
from runner import HEADER

pytest.importorskip("cuda.bindings")


def test_a_kernel_lasts_as_long_as_what_it_did_costs(gpu):
    # tiny has 1 byte/ns of memory bandwidth, and 8 SMs of 1 flop/ns each.
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
    # Both blocks fit on one SM: 256 threads, each with 256 others, 18 flops a pair.
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


# The first thread of each block writes down when it began, and sleeps. After the barrier, the last
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
    # tiny holds 64 blocks of 256 threads, so the last one begins when the first has ended.
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
    few = 50  # instructions, of 1 ns each

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


def test_blocks_wait_for_each_other_also_beside_a_kernel_that_is_there_before_them(gpu):
    # The earlier kernel has four of the eight SMs when these blocks begin on the others, and there
    # are more of them than fit there.
    gpu.run(f"""
device.modules["m"] = ok(cu.cuModuleLoadData({SLEEPER.encode()!r}))
first, second = [ok(cu.cuStreamCreate(1)) for _ in range(2)]
times, flags = OnDevice("Q", [0] * 64), OnDevice("I", [0] * 65)
ok(device.launch("m.k", 32, 256, times, ctypes.c_uint(400_000), stream=first))
ok(device.launch("cooperative.backwards", 64, 256, flags, stream=second))
ok(cu.cuCtxSynchronize())
assert flags.read() == [*range(64, 0, -1), 0]
""")
    there, begun, later = gpu.kernels()

    assert (there["sms"], begun["sms"], later["sms"]) == (4, 4, 8)
    assert there["t_end_ns"] == begun["t_end_ns"] == later["t_start_ns"]


# Two blocks of two warps form one cluster. The first warp of the first block does one thing and the
# others another; the first thread of each warp writes down how long that took.
def meeting(first, others):
    return f"""{HEADER.replace("80", "90")}.entry k(.param .u64 slept)
.explicitcluster .reqnctapercluster 2, 1, 1 {{
.reg .b32 %r<5>; .reg .b64 %rd<5>; .reg .pred %p;
mov.u64 %rd3, %globaltimer;
ld.param.u64 %rd1, [slept]; mov.u32 %r1, 300000;
mov.u32 %r2, %ctaid.x; mov.u32 %r3, %tid.x; mad.lo.u32 %r2, %r2, 64, %r3;
shr.u32 %r4, %r2, 5; mul.wide.u32 %rd2, %r4, 8; add.s64 %rd1, %rd1, %rd2;
setp.ne.u32 %p, %r4, 0; @%p bra OTHERS;
{first} bra END;
OTHERS: {others}
END: and.b32 %r3, %r3, 31; setp.ne.u32 %p, %r3, 0; @%p bra LEAVE;
mov.u64 %rd4, %globaltimer; sub.u64 %rd4, %rd4, %rd3; st.global.u64 [%rd1], %rd4;
LEAVE: ret; }}\0"""


SLEEP = "nanosleep.u32 %r1;"


@pytest.mark.parametrize(
    ("first", "others", "who_waits"),
    [
        (SLEEP, "", [0]),
        (f"{SLEEP} bar.sync 1, 64;", "setp.gt.u32 %p, %r4, 1; @!%p bar.sync 1, 64;", [0, 1]),
        (f"{SLEEP} bar.arrive 1, 64;", "setp.gt.u32 %p, %r4, 1; @!%p bar.sync 1, 64;", [0, 1]),
        (f"bar.arrive 1, 64; {SLEEP}", "setp.gt.u32 %p, %r4, 1; @!%p bar.sync 1, 64;", [0]),
        (f"{SLEEP} exit;", "bar.sync 0;", [1]),
        (f"{SLEEP} exit;", "bar.sync 1, 32;", []),
        (f"{SLEEP} barrier.cluster.arrive; barrier.cluster.wait;", None, [0, 1, 2, 3]),
        (f"barrier.cluster.arrive; {SLEEP} barrier.cluster.wait;", None, [0]),
        (f"barrier.cluster.arrive; barrier.cluster.wait; {SLEEP}", None, [0]),
        (f"{SLEEP} exit;", None, [1, 2, 3]),
    ],
)
def test_at_a_barrier_all_wait_for_who_sleeps_before_it(gpu, first, others, who_waits):
    if others is None:
        others = "barrier.cluster.arrive; barrier.cluster.wait;"
    text = meeting(first, others)
    child = gpu.run(f"""
device.modules["m"] = ok(cu.cuModuleLoadData({text.encode()!r}))
slept = OnDevice("Q", [0] * 4)
device.run("m.k", 2, 64, slept)
print(*slept.read())
""")

    slept_ns = [*map(int, child.stdout.split())]
    few = 50  # instructions, of 1 ns each
    assert [ns >= 300_000 for ns in slept_ns] == [warp in who_waits for warp in range(4)]
    assert all(ns % 300_000 < few for ns in slept_ns)


def test_the_blocks_of_a_cluster_begin_at_one_time(gpu):
    # 16 blocks fit, and each sleeps longer than the one before. After the first eight clusters, the
    # next one begins when two blocks have ended.
    text = f"""{HEADER.replace("80", "90")}.entry k(.param .u64 times)
.explicitcluster .reqnctapercluster 2, 1, 1 {{
.reg .b32 %r<3>; .reg .b64 %rd<4>; .reg .pred %p;
mov.u64 %rd3, %globaltimer;
mov.u32 %r1, %tid.x; setp.ne.u32 %p, %r1, 0; @%p bra END;
ld.param.u64 %rd1, [times]; mov.u32 %r1, %ctaid.x;
mul.wide.u32 %rd2, %r1, 8; add.s64 %rd1, %rd1, %rd2; st.global.u64 [%rd1], %rd3;
add.u32 %r1, %r1, 1; mul.lo.u32 %r1, %r1, 1000; nanosleep.u32 %r1;
END: ret; }}\0"""
    child = gpu.run(f"""
device.modules["m"] = ok(cu.cuModuleLoadData({text.encode()!r}))
times = OnDevice("Q", [0] * 22)
device.run("m.k", 22, 1024, times)
print(*times.read())
""")

    first, *begins = map(int, child.stdout.split())
    begin_us = [(ns - first) // 1000 for ns in (first, *begins)]
    assert begin_us == [0] * 16 + [2, 2, 4, 4, 6, 6]
