"""What PTX instructions compute, in Python: on bit patterns, and exactly, with fractions."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from fractions import Fraction

WIDTH = {"u8": 8, "s8": 8, "u16": 16, "s16": 16, "b16": 16, "u32": 32, "s32": 32, "b32": 32,
         "u64": 64, "s64": 64, "b64": 64, "f16": 16, "bf16": 16, "f32": 32, "f64": 64,
         "pred": 32, "f16x2": 32, "bf16x2": 32}  # fmt: skip
# Digits of the significand including its leading one, and the smallest normal number's exponent.
FORMATS = {"f16": (11, -14), "bf16": (8, -126), "f32": (24, -126), "f64": (53, -1022)}
CANONICAL_NAN = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF}


def cut(value: int, kind: str) -> int:
    return value & ((1 << WIDTH[kind]) - 1)


def number(bits: int, kind: str) -> int:
    """Return the integer that the bits of an integer type represent."""
    bits = cut(bits, kind)
    return bits - (1 << WIDTH[kind]) if kind[0] == "s" and bits >> (WIDTH[kind] - 1) else bits


def real(bits: int, kind: str) -> float:
    bits = cut(bits, kind)
    if kind == "bf16":
        return struct.unpack("<f", struct.pack("<I", bits << 16))[0]
    code, store = {"f16": ("e", "H"), "f32": ("f", "I"), "f64": ("d", "Q")}[kind]
    return struct.unpack(f"<{code}", struct.pack(f"<{store}", bits))[0]


def encode(x: float, kind: str) -> int:
    """Return the bits of a value that the format represents exactly, or of an infinity or NaN."""
    if math.isnan(x) and kind in CANONICAL_NAN:
        return CANONICAL_NAN[kind]
    if kind == "bf16":
        return struct.unpack("<I", struct.pack("<f", x))[0] >> 16
    code, store = {"f16": ("e", "H"), "f32": ("f", "I"), "f64": ("d", "Q")}[kind]
    return struct.unpack(f"<{store}", struct.pack(f"<{code}", x))[0]


def whole(x: Fraction, mode: str) -> int:
    """Round to an integer: n(earest even), z(ero), m(inus infinity) or p(lus infinity)."""
    match mode:
        case "n":
            return round(x)
        case "z":
            return math.trunc(x)
        case "m":
            return math.floor(x)
        case _:
            return math.ceil(x)


def rounded(x: Fraction, kind: str, mode: str = "n") -> int:
    """Return the bits of the format's number that is next to x in that rounding mode."""
    digits, least = FORMATS[kind]
    if x == 0:
        return 0
    exponent = x.numerator.bit_length() - x.denominator.bit_length()
    exponent -= abs(x) < Fraction(2) ** exponent
    unit = Fraction(2) ** (max(exponent, least) - digits + 1)
    value = whole(x / unit, mode) * unit
    largest = (2 - Fraction(2) ** (1 - digits)) * Fraction(2) ** (1 - least)
    if abs(value) > largest:
        inward = mode == "z" or (mode == "m" and x > 0) or (mode == "p" and x < 0)
        size = encode(float(largest), kind) if inward else encode(math.inf, kind)
        return size | ((x < 0) << (WIDTH[kind] - 1))
    bits = encode(float(value), kind)
    return bits | ((x < 0) << (WIDTH[kind] - 1))


def arithmetic(operation: Callable[..., float], kind: str, mode: str = "n") -> Callable[..., int]:
    """Model an operation on floats or fractions: exact, rounded once, except for special values."""

    def model(*bits: int) -> int:
        values = [real(b, kind) for b in bits]
        if all(math.isfinite(v) for v in values):
            exact = operation(*map(Fraction, values))
            if exact != 0:
                return rounded(exact, kind, mode)
        return encode(operation(*values), kind)

    return model


def saturated(bits: int, kind: str) -> int:
    x = real(bits, kind)
    return encode(0.0 if math.isnan(x) or x <= 0 else min(x, 1.0), kind)


def float_to_int(x: float, source: str, to: str, mode: str) -> int:
    least, most = number_range(to)
    if math.isnan(x):
        wide = source == "f64" or WIDTH[to] == 64
        return 1 << (WIDTH[to] - 1) if wide else 0
    if math.isinf(x):
        return cut(most if x > 0 else least, to)
    return cut(min(max(whole(Fraction(x), mode), least), most), to)


def number_range(kind: str) -> tuple[int, int]:
    if kind[0] == "s":
        return -(1 << (WIDTH[kind] - 1)), (1 << (WIDTH[kind] - 1)) - 1
    return 0, (1 << WIDTH[kind]) - 1


def quotient(a: int, b: int) -> int:
    """Divide as C does: towards zero."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
