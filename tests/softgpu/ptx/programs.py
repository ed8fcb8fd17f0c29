"""Runs the kernels of tests/data/ptx against Python, all in one process, one by one.

python tests/softgpu/ptx/programs.py      # prints JSON: name -> null, or the traceback
"""

from __future__ import annotations

import ctypes
import json
import math
import random
import re
import struct
import sys
import traceback

from cuda.bindings import driver as cu
from ptx_device import DATA, Device, OnDevice, ok

INT, SIZE, FLOAT = ctypes.c_int, ctypes.c_size_t, ctypes.c_float


def f32(x: float) -> float:
    """Return the nearest float."""
    return struct.unpack("f", struct.pack("f", x))[0]


def close(found, expected, relative: float = 1e-5, absolute: float = 1e-6) -> None:
    assert len(found) == len(expected)
    for i, (a, b) in enumerate(zip(found, expected, strict=True)):
        assert abs(a - b) <= absolute + relative * abs(b), (i, a, b)


def vector_add(device: Device) -> None:
    n = 1000
    a = OnDevice("f", [i * 0.5 for i in range(n)])
    b, c = OnDevice("f", [i * 3.0 for i in range(n)]), OnDevice("f", [-1.0] * (n + 24))
    device.run("elementwise.vector_add", 4, 256, a, b, c, INT(n))
    assert c.read() == [i * 3.5 for i in range(n)] + [-1.0] * 24


def saxpy_with_a_grid_stride(device: Device) -> None:
    n = 777
    x, y = OnDevice("f", range(n)), OnDevice("f", [1.0] * n)
    device.run("elementwise.saxpy", 2, 96, FLOAT(2.0), x, y, SIZE(n))
    assert y.read() == [2.0 * i + 1 for i in range(n)]


def vectors_of_four(device: Device) -> None:
    x, by = OnDevice("f", range(256)), OnDevice("f", [(i % 4) - 1.5 for i in range(256)])
    device.run("elementwise.scale4", 2, 32, x, by)
    assert x.read() == [i * ((i % 4) - 1.5) for i in range(256)]


class Mixed(ctypes.Structure):
    _fields_ = (
        ("tag", ctypes.c_char),
        ("weight", ctypes.c_double),
        ("values", ctypes.c_float * 3),
        ("last", ctypes.c_short),
    )


def structures_by_value(device: Device) -> None:
    mixed = Mixed(b"\x07", 2.5, (ctypes.c_float * 3)(1, 2, 3), -300)
    out = OnDevice("d", [0.0] * 40)
    device.run("elementwise.by_value", 1, 40, mixed, ctypes.c_ubyte(200), out)
    assert out.read() == [2.5 * (1 + i % 3) + 7 - 300 + 200 for i in range(40)]


def reduction(device: Device) -> None:
    x, total = OnDevice("f", [(i % 13) - 4 for i in range(5000)]), OnDevice("f", [0.0])
    device.run("shared.reduce", 3, 128, x, total, INT(5000))
    assert total.read() == [sum((i % 13) - 4 for i in range(5000))]


def tiled_matmul(device: Device) -> None:
    n = 40
    a = [float(random.randint(-8, 8)) for _ in range(n * n)]
    b = [float(random.randint(-8, 8)) for _ in range(n * n)]
    on_a, on_b, c = OnDevice("f", a), OnDevice("f", b), OnDevice("f", [0.0] * (n * n))
    device.run("shared.matmul", (3, 3), (16, 16), on_a, on_b, c, INT(n))
    expected = [
        sum(a[i * n + k] * b[k * n + j] for k in range(n)) for i in range(n) for j in range(n)
    ]
    assert c.read() == expected


def histogram_with_atomics(device: Device) -> None:
    values = [random.randrange(256) ** 2 // 256 for _ in range(4000)]
    x, bins = OnDevice("B", values), OnDevice("I", [0] * 256)
    device.run("shared.histogram", 4, 96, x, bins, INT(len(values)))
    assert bins.read() == [values.count(i) for i in range(256)]


def a_grid_that_meets_between_steps(device: Device) -> None:
    blocks, threads, steps = 8, 64, 5
    model = [(i * i) % 101 for i in range(blocks * threads)]
    cells, other = OnDevice("I", model), OnDevice("I", [0] * len(model))
    for _ in range(steps):
        model = [(model[(i + 1) % len(model)] + model[i - 1]) % 2**32 for i in range(len(model))]
    device.run(
        "cooperative.neighbours", (4, 2), (32, 2), cells, other, INT(steps), cooperative=True
    )
    assert cells.read() == model


def blocks_keep_their_memory_while_others_run(device: Device) -> None:
    blocks, threads = 7, 96
    order = [(3 * k + 1) % 8 for k in range(8)]
    on_device, sums = OnDevice("i", order), OnDevice("I", [0] * blocks)
    out = OnDevice("I", [0] * (blocks * threads))
    arguments = (on_device, sums, out)
    device.run("cooperative.keeps", 7, 96, *arguments, shared=4 * threads, cooperative=True)
    total = threads * (threads + 1) // 2
    assert out.read() == [
        total + 3 * (b * threads + threads - 1 - t) + (t % 8) * (b * threads + t)
        for b in range(blocks)
        for t in range(threads)
    ]


def blocks_that_wait_for_later_ones(device: Device) -> None:
    blocks = 8
    flags = OnDevice("I", [0] * (blocks + 1))
    device.run("cooperative.backwards", blocks, 1, flags)
    assert flags.read() == [*range(blocks, 0, -1), 0]
    turn, out = OnDevice("I", [0]), OnDevice("I", [0] * blocks)
    device.run("cooperative.tickets", blocks, 1, turn, out)
    assert out.read() == [*range(blocks - 1, -1, -1)]
    assert turn.read() == [blocks]


def has_clusters() -> bool:
    """Tell whether the GPU has clusters; without them it cannot load the module."""
    attribute = cu.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH
    return bool(ok(cu.cuDeviceGetAttribute(attribute, ok(cu.cuCtxGetDevice()))))


def shared_memory_of_the_cluster(device: Device) -> None:
    if not has_clusters():
        return
    out = OnDevice("I", [0] * 512)
    device.run("cluster.turn", 8, 64, out, shared=256)
    after = [1, 2, 3, 0, 5, 6, 7, 4]
    assert out.read() == [107 * b + t for b in after for t in range(64)]


def a_histogram_spread_over_a_cluster(device: Device) -> None:
    if not has_clusters():
        return
    values = [random.randrange(32) for _ in range(3000)]
    x, bins = OnDevice("B", values), OnDevice("I", [0] * 32)
    device.run("cluster.histogram", (4, 2), 96, x, INT(len(values)), bins)
    assert bins.read() == [values.count(i) for i in range(32)]


def words_that_move_on_in_a_cluster(device: Device) -> None:
    if not has_clusters():
        return
    words = list(range(8))
    for _ in range(5):
        words = [(words[i] + words[(i + 1) % 8]) % 2**32 for i in range(8)]
    out = OnDevice("I", [0] * 16)
    device.run("cluster.relay", 16, 64, out, INT(5))
    assert out.read() == words * 2


def scan_in_dynamic_shared_memory(device: Device) -> None:
    n = 200
    values = [random.randint(-1000, 1000) for _ in range(n)]
    x = OnDevice("i", values)
    device.run("shared.inclusive_scan", 1, 224, x, INT(n), shared=8 * n)
    assert x.read() == [sum(values[: i + 1]) for i in range(n)]


def bitonic_sort(device: Device) -> None:
    values = [random.getrandbits(64) for _ in range(256)]
    x = OnDevice("Q", values)
    device.run("shared.bitonic_sort", 1, 256, x, INT(256), shared=8 * 256)
    assert x.read() == sorted(values)


def reductions_at_a_barrier(device: Device) -> None:
    for values in ([1] * 96, [0] * 96, [i % 3 for i in range(96)]):
        x, out = OnDevice("i", values), OnDevice("i", [-1] * 3)
        device.run("shared.barrier_reductions", 1, 96, x, out)
        positive = [v > 0 for v in values]
        assert out.read() == [sum(positive), int(all(positive)), int(any(positive))]


def votes_and_matches(device: Device) -> None:
    values = [(i * i) % 7 for i in range(32)]
    x, out = OnDevice("i", values), OnDevice("I", [0] * 128)
    device.run("shared.warp_votes", 1, 32, x, out)
    odd = sum(1 << i for i in range(32) if values[i] % 2)
    expected = []
    for value in values:
        same = sum(1 << i for i in range(32) if values[i] == value)
        most = 1000 + 2000 * (3 in values)
        positive = sum(1 << i for i in range(32) if values[i] > 0)
        expected += [positive, same, min(values) + most, odd if value % 2 else 0]
    assert out.read() == expected


def warps_that_spin_until_others_let_them_go(device: Device) -> None:
    turn = OnDevice("i", [0])
    device.run("shared.relay", 1, 128, turn)
    assert turn.read() == [4]


def mandelbrot(device: Device) -> None:
    width, height, limit = 50, 20, 100
    out = OnDevice("I", [0] * (width * height))
    device.run("numeric.mandelbrot", (4, 3), (16, 8), out, INT(width), INT(height), INT(limit))
    differ = 0
    for y in range(height):
        for x in range(width):
            cr, ci = -2.0 + 3.0 * x / width, -1.25 + 2.5 * y / height
            zr = zi = 0.0
            n = 0
            while n < limit and zr * zr + zi * zi < 4.0:
                zr, zi, n = zr * zr - zi * zi + cr, 2 * zr * zi + ci, n + 1
            differ += out.read()[y * width + x] != n if n < limit else 0
    assert differ <= 10  # of 1000: single and double precision differ at the rim


def nbody(device: Device) -> None:
    n = 50
    bodies = [(random.uniform(-1, 1) if i % 4 < 3 else 1 + i % 3) for i in range(4 * n)]
    bodies = [f32(b) for b in bodies]
    on, forces = OnDevice("f", bodies), OnDevice("f", [0.0] * (3 * n))
    device.run("numeric.nbody", 2, 32, on, forces, INT(n), shared=16 * 32)
    expected = []
    for i in range(n):
        force = [0.0, 0.0, 0.0]
        for j in range(n):
            away = [bodies[4 * j + k] - bodies[4 * i + k] for k in range(3)]
            square = sum(a * a for a in away) + 0.01
            for k in range(3):
                force[k] += away[k] * bodies[4 * j + 3] / (math.sqrt(square) * square)
        expected += force
    close(forces.read(), expected, relative=1e-3, absolute=1e-2)


def black_scholes(device: Device) -> None:
    n, rate, volatility = 300, 0.02, 0.3
    price = [f32(random.uniform(5, 30)) for _ in range(n)]
    strike = [f32(random.uniform(1, 100)) for _ in range(n)]
    years = [f32(random.uniform(0.25, 10)) for _ in range(n)]
    call, put = OnDevice("f", [0.0] * n), OnDevice("f", [0.0] * n)
    inputs = [OnDevice("f", x) for x in (price, strike, years)]
    rates = FLOAT(rate), FLOAT(volatility)
    device.run("numeric.black_scholes", 5, 64, *inputs, *rates, call, put, INT(n))

    def cdf(d: float) -> float:
        return 0.5 * math.erfc(-d / math.sqrt(2))

    calls, puts = [], []
    for s, x, t in zip(price, strike, years, strict=True):
        root = volatility * math.sqrt(t)
        d1 = (math.log(s / x) + (rate + 0.5 * volatility**2) * t) / root
        discount = x * math.exp(-rate * t)
        calls.append(s * cdf(d1) - discount * cdf(d1 - root))
        puts.append(discount * cdf(root - d1) - s * cdf(-d1))
    close(call.read(), calls, absolute=1e-4)
    close(put.read(), puts, absolute=1e-4)


def double_functions(device: Device) -> None:
    values = [random.uniform(-20, 20) for _ in range(60)] + [0.0, 1e-8, 1.5, -1e5]
    x, out = OnDevice("d", values), OnDevice("d", [0.0] * (12 * len(values)))
    device.run("numeric.functions", 1, 64, x, out, INT(len(values)))
    expected = []
    for v in values:
        size = abs(v)
        expected += [math.sin(v), math.cos(v), math.tan(v), math.exp(v), math.log(size + 1)]
        expected += [size**1.7, math.atan2(v, 2.0), math.tanh(v)]
        expected += [math.copysign(size ** (1 / 3), v), math.erf(v), math.fmod(v, 0.7)]
        whole = math.floor(v) + math.ceil(v) + round(v)
        expected.append(math.sqrt(size) + math.hypot(v, 3.0) + whole)
    close(out.read(), expected, relative=1e-11, absolute=1e-13)


def hashes(device: Device) -> None:
    words = [bytes(random.randrange(256) for _ in range(i)) for i in range(40)]
    starts = [sum(map(len, words[:i])) for i in range(len(words) + 1)]
    text, begin = OnDevice("B", b"".join(words)), OnDevice("i", starts)
    out = OnDevice("Q", [0] * len(words))
    device.run("numeric.fnv1a", 1, len(words), text, begin, out)
    for word, found in zip(words, out.read(), strict=True):
        expected = 14695981039346656037
        for byte in word:
            expected = (expected ^ byte) * 1099511628211 % 2**64
        assert found == expected


def signed(value: int, bits: int = 64) -> int:
    value %= 1 << bits
    return value - (1 << bits) if value >> (bits - 1) else value


def wide_integers(device: Device) -> None:
    numbers = [0, 1, -1, 7, -(2**63), 2**63 - 1, 123456789012345, -987654321, 2**32, 3]
    pairs = [(a, b) for a in numbers for b in numbers]
    a, b = OnDevice("q", [p[0] for p in pairs]), OnDevice("q", [p[1] for p in pairs])
    out = OnDevice("q", [0] * (8 * len(pairs)))
    device.run("numeric.wide_integers", 1, len(pairs), a, b, out)
    for i, (x, y) in enumerate(pairs):
        found = out.read()[8 * i : 8 * i + 8]
        bits, by = x % 2**64, y & 63
        quotient = signed(abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)) if y else -1
        lowest = (bits & -bits).bit_length()
        expected = [
            signed(x * y),
            quotient,
            signed(x - quotient * y) if y else -1,
            signed(x * y >> 64),
            signed(bits * (y % 2**64) >> 64),
            bits.bit_count() + 100 * (64 - bits.bit_length()) + 10000 * lowest,
            signed(int(f"{bits:064b}"[::-1], 2)),
            signed(signed(x << by) ^ (x >> by)),
        ]
        assert found == expected, (x, y)


def walked(i: int) -> int:
    """Do what the loops of the kernel `divergence` do."""
    value = 0
    for k in range(i % 7):
        if k % 2 == 0:
            value += k
            if i % 3 == 1:
                continue
            value *= 2
        else:
            stop = 3 if k == 3 and i % 5 >= 3 else 0
            value += sum(j * k for j in range(i % 5, stop, -1))
        if value > 40:
            break
    return value


def diverged(i: int) -> int:
    value = walked(i)
    otherwise = 7 if i % 4 == 1 else value
    return [value + 1, (value - 2) ^ 5, value ^ 5, -value, value * 3, otherwise][i % 6]


def divergence_torture(device: Device) -> None:
    n = 160
    out = OnDevice("i", [0] * n)
    device.run("control.divergence", 5, 32, out, INT(n))
    together = [sum(1 for i in range(32 * w, 32 * w + 32) if i % 6 != 3) for w in range(5)]
    assert out.read() == [
        diverged(i) + (1000 * together[i // 32] if i % 6 != 3 else 0) for i in range(n)
    ]


def lanes_that_spin_for_a_lock(device: Device) -> None:
    lock, count = OnDevice("i", [0]), OnDevice("i", [0])
    device.run("control.locked", 2, 64, lock, count)
    assert count.read() == [128]
    assert lock.read() == [0]


def a_long_loop_before_a_barrier(device: Device) -> None:
    out, turns = OnDevice("i", [0] * 64), 20_000
    device.run("control.long_loop", 1, 64, out, INT(turns))
    sums = [sum(k ^ i for k in range(turns if i == 5 else i)) for i in range(64)]
    assert out.read() == sums[::-1]


def recursion(device: Device) -> None:
    out = OnDevice("I", [0] * 64)
    device.run("control.recursion", 1, 64, out)
    fibonacci = [0, 1]
    while len(fibonacci) < 12:
        fibonacci.append(fibonacci[-1] + fibonacci[-2])
    assert out.read() == [fibonacci[i % 12] for i in range(64)]


def calls_with_structures(device: Device) -> None:
    pairs = OnDevice("d", [0.0] * 80)
    raw = b"".join(struct.pack("f4xd", i, 2.0 * i) for i in range(40))
    ok(cu.cuMemcpyHtoD(pairs.pointer, raw, len(raw)))
    device.run("control.calls", 1, 40, pairs)
    pairs.read()
    for i, (x, y) in enumerate(struct.iter_unpack("f4xd", pairs.host.tobytes())):
        assert (x, y) == ((2.0 * i + i, float(i)) if i % 3 != 1 else (float(i), 2.0 * i))


def calls_through_pointers(device: Device) -> None:
    x, which = OnDevice("f", range(40)), OnDevice("i", [i // 3 % 2 for i in range(40)])
    device.run("control.through_pointers", 1, 40, x, which)
    assert x.read() == [float(i * i if i // 3 % 2 else 2 * i) for i in range(40)]


def variables_of_a_module(device: Device) -> None:
    module = device.module("control")
    out, counter = OnDevice("f", [0.0] * 64), OnDevice("i", [0])
    address, size = ok(cu.cuModuleGetGlobal(module, b"counter"))
    assert size == 4
    device.run("control.variables", 1, 64, out)
    ok(cu.cuMemcpyDtoD(counter.pointer, address, 4))
    assert counter.read() == [5 + 2 * 64]
    assert out.read() == [1.0, 2.0, 3.0, 4.0] * 16
    table, size = ok(cu.cuModuleGetGlobal(module, b"table"))
    assert size == 16
    ok(cu.cuMemcpyHtoD(table, struct.pack("4f", 9, 8, 7, 6), 16))
    device.run("control.variables", 1, 64, out)
    assert out.read() == [9.0, 8.0, 7.0, 6.0] * 16


def arrays_in_local_memory(device: Device) -> None:
    order = [(7 * i + 3) % 16 for i in range(16)]
    on, out = OnDevice("i", order), OnDevice("i", [0] * 50)
    device.run("control.local_arrays", 1, 50, on, out)
    place = {at: k for k, at in enumerate(order)}
    assert out.read() == [i * place[3] + i * (i % 16) for i in range(50)]


def half(x: float) -> float:
    return struct.unpack("e", struct.pack("e", x))[0]


def half_precision(device: Device) -> None:
    a = [half(random.uniform(-4, 4)) for _ in range(64)]
    b = [half(random.uniform(-4, 4)) for _ in range(64)]

    def stored(values: list[float]) -> OnDevice:
        return OnDevice("H", [struct.unpack("H", struct.pack("e", v))[0] for v in values])

    out = OnDevice("H", [0] * (6 * 64))
    device.run("half.half_math", 1, 64, stored(a), stored(b), out)
    found = [struct.unpack("e", struct.pack("H", h))[0] for h in out.read()]
    expected = []
    for x, y in zip(a, b, strict=True):
        expected += [half(x + y), half(x * y), half(x * y + x), half(x - y)]
        expected += [half(f32(math.sqrt(abs(x)))), x if x < y else -y]
    assert found == expected


def half_pairs(device: Device) -> None:
    values = [half(random.uniform(-4, 4)) for _ in range(64)]
    x = OnDevice("I", [0] * 32)
    ok(cu.cuMemcpyHtoD(x.pointer, struct.pack("64e", *values), 128))
    out = OnDevice("f", [0.0] * 64)
    device.run("half.half_pairs", 1, 32, x, out)
    assert out.read() == [half(v * v + 1) for v in values]


def bfloat(x: float) -> int:
    bits = struct.unpack("I", struct.pack("f", x))[0]
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def brain_floats(device: Device) -> None:
    stored = [bfloat(random.uniform(-100, 100)) for _ in range(32)]
    a, out, wide = OnDevice("H", stored), OnDevice("H", [0] * 32), OnDevice("f", [0.0] * 32)
    device.run("half.brain_floats", 1, 32, a, out, wide)
    values = [struct.unpack("f", struct.pack("I", s << 16))[0] for s in stored]
    expected = [bfloat(f32(v * f32(1.01))) for v in values]
    assert out.read() == expected
    assert wide.read() == [struct.unpack("f", struct.pack("I", e << 16))[0] for e in expected]


def numba_array(x: OnDevice) -> list:
    """Return a one-dimensional array as numba passes it: owner, length, data, shape and strides."""
    length, size = len(x.host), x.host.itemsize
    return [SIZE(0), SIZE(0), SIZE(length), SIZE(size), x, SIZE(length), SIZE(size)]


def numba_kernel(name: str) -> str:
    text = (DATA / f"numba_{name}.ptx").read_text()
    return f"numba_{name}." + re.findall(r"\.visible \.entry (\w+)", text)[0]


def functions_compiled_by_numba(device: Device) -> None:
    values = [0.37 * i for i in range(300)]
    x, out = OnDevice("d", values), OnDevice("d", [0.0] * 300)
    device.run(numba_kernel("special"), 5, 64, *numba_array(x), *numba_array(out))
    expected = [math.sin(v) * math.exp(-v / 100) + math.pow(v, 1.5) + math.erf(v) for v in values]
    close(out.read(), expected, relative=1e-12)


def atomics_compiled_by_numba(device: Device) -> None:
    values = [random.randint(-50, 50) for _ in range(500)]
    x, bins = OnDevice("i", values), OnDevice("i", [0] * 7)
    device.run(numba_kernel("counted"), 4, 128, *numba_array(x), *numba_array(bins))
    assert bins.read() == [sum(v % 7 == i for v in values) for i in range(7)]


PROGRAMS = [value for name, value in list(globals().items())
            if callable(value) and value.__module__ == __name__
            and getattr(value, "__annotations__", {}).get("device") == "Device"]  # fmt: skip


def main() -> None:
    device = Device()
    results: dict[str, str | None] = {}
    for program in PROGRAMS:
        random.seed(program.__name__)
        try:
            program(device)
            results[program.__name__] = None
        except Exception:
            results[program.__name__] = traceback.format_exc()
        ok(cu.cuCtxSynchronize())
    sys.stdout.write("\n" + json.dumps(results) + "\n")


if __name__ == "__main__":
    main()
