"""Runs every row of instruction_table.py on edge values and random ones, 32 lanes a row.

python tests/softgpu/ptx/instructions.py      # prints JSON: instruction -> what was wrong
"""

from __future__ import annotations

import array
import json
import math
import random
import struct
import sys

from cuda.bindings import driver as cu
from instruction_models import WIDTH, cut, encode, real
from instruction_table import Row, rows
from ptx_device import POINTER, Device, OnDevice, ok

LANES = 32
REAL = {"f16", "bf16", "f32", "f64"}
STORED = {"shift": "u32", "positive": "f32"}  # kinds of input that are subsets of a type


def value(kind: str, chance: random.Random) -> int:
    if kind == "shift":
        return chance.choice([0, 1, 7, 15, 16, 31, 32, 33, 63, 64, 200, chance.randrange(64)])
    if kind == "positive":
        return encode(struct.unpack("f", struct.pack("f", 2 ** chance.uniform(-3, 3)))[0], "f32")
    if kind.endswith("x2"):
        return value(kind[:-2], chance) | value(kind[:-2], chance) << 16
    if kind in REAL:
        return real_value(kind, chance)
    n = WIDTH[kind]
    edges = [0, 1, 2, 3, (1 << n) - 1, 1 << (n - 1), (1 << (n - 1)) - 1, 0x55, 1 << (n // 2)]
    return chance.choice(
        [*edges, chance.getrandbits(n), chance.getrandbits(n), chance.getrandbits(8)]
    )


def real_value(kind: str, chance: random.Random) -> int:
    n = WIDTH[kind]
    edges = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        math.inf,
        -math.inf,
        math.nan,
        0.5,
        1.5,
        2.5,
        -2.5,
        255.0,
        65504.0,
    ]
    ordinary = cut(chance.getrandbits(n), kind)
    near_one = encode(1.0, kind) ^ chance.getrandbits(n // 3)
    bits = chance.choice([encode(chance.choice(edges), kind), ordinary, near_one, near_one, 1])
    return encode(math.nan, kind) if math.isnan(real(bits, kind)) else bits


def register(kind: str) -> str:
    kind = STORED.get(kind, kind)
    if kind == "pred":
        return "pred"
    return kind if kind in ("f32", "f64") else f"b{max(WIDTH[kind], 16)}"


def kernel(row: Row, number: int) -> str:
    declared = [
        f".reg .{register(k)} %{name};" for k, name in zip(row.sources, "abcg", strict=False)
    ]
    declared += [
        f".reg .{register(k)} %{name};" for k, name in zip(row.results, "de", strict=False)
    ]
    loads = [f"ld.global.b{WIDTH[STORED.get(k, k)]} %{name}, [%in+{8 * i}];"
             for i, (k, name) in enumerate(zip(row.sources, "abcg", strict=False))]  # fmt: skip
    stores = []
    for i, (kind, name) in enumerate(zip(row.results, "de", strict=False)):
        if kind == "pred":
            stores.append(f"selp.u32 %t, 1, 0, %{name}; st.global.u32 [%out+{8 * i}], %t;")
        else:
            stores.append(f"st.global.b{WIDTH[kind]} [%out+{8 * i}], %{name};")
    return f"""
.visible .entry t{number}(.param .u64 p, .param .u64 q)
{{ .reg .b32 %t; .reg .b64 %in, %out, %at; .reg .pred %p<4>;
{" ".join(declared)}
mov.u32 %t, %tid.x; ld.param.u64 %in, [p]; ld.param.u64 %out, [q];
mul.wide.u32 %at, %t, {8 * len(row.sources)}; add.s64 %in, %in, %at;
mul.wide.u32 %at, %t, {8 * len(row.results)}; add.s64 %out, %out, %at;
{" ".join(loads)}
{row.text}
{" ".join(stores)}
ret; }}"""


def wrong(row: Row, inputs: list[int], found: tuple[int, ...]) -> str | None:
    expected = row.model(*inputs)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for kind, a, b in zip(row.results, found, expected, strict=True):
        if a == b:
            continue
        if kind in REAL:
            x, y = real(a, kind), real(b, kind)
            if (math.isnan(x) and math.isnan(y)) or x == y == 0:
                continue  # f64 keeps payloads; directed roundings sign zeros their own way
            if row.tolerance and abs(x - y) <= row.tolerance * abs(y):
                continue
        return f"{[hex(i) for i in inputs]} gave {hex(a)}, not {hex(b)}"
    return None


def main() -> None:
    table = rows()
    chance = random.Random(4)
    inputs = [[value(k, chance) for k in row.sources for _ in [0]] for row in table
              for _ in range(LANES)]  # fmt: skip
    text = ".version 8.6\n.target sm_90\n.address_size 64\n"
    text += "".join(kernel(row, i) for i, row in enumerate(table))
    device = Device()
    device.modules["t"] = ok(cu.cuModuleLoadData(text.encode() + b"\0"))
    given = OnDevice("Q", [word for lane in inputs for word in lane])
    taken = OnDevice("Q", [0] * sum(LANES * len(row.results) for row in table))
    read, written = given.pointer, taken.pointer
    for i, row in enumerate(table):
        ok(device.launch(f"t.t{i}", 1, LANES, POINTER(read), POINTER(written)))
        read += 8 * LANES * len(row.sources)
        written += 8 * LANES * len(row.results)
    ok(cu.cuCtxSynchronize())
    found = array.array("Q", taken.read())
    at, problems = 0, {}
    for i, row in enumerate(table):
        for lane in range(LANES):
            results = tuple(found[at : at + len(row.results)])
            at += len(row.results)
            problem = wrong(row, inputs[i * LANES + lane], results)
            if problem:
                problems.setdefault(row.name, problem)
    sys.stdout.write(json.dumps({"rows": len(table), "problems": problems}) + "\n")


if __name__ == "__main__":
    main()
