"""Kernels of tests/data/ptx against what Python computes. All run in one process, one by one.

python tests/softgpu/ptx/programs.py      # prints JSON: name -> null, or the traceback
"""

from __future__ import annotations

import ctypes
import json
import random
import struct
import sys
import traceback

from cuda.bindings import driver as cu
from ptx_device import Device, OnDevice, ok

INT, SIZE, FLOAT = ctypes.c_int, ctypes.c_size_t, ctypes.c_float


def f32(x: float) -> float:
    """The nearest float."""
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
