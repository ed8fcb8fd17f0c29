"""Instructions, their sources and results, and a model of each: rows for test_instructions.py."""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

from instruction_models import (
    WIDTH,
    arithmetic,
    cut,
    encode,
    float_to_int,
    number,
    number_range,
    quotient,
    real,
    rounded,
    saturated,
)


@dataclass(frozen=True)
class Row:
    """`text` has %a %b %c %g for sources and %d %e for results; `model` maps bits to bits."""

    text: str
    sources: tuple[str, ...]
    results: tuple[str, ...]
    model: Callable[..., int | tuple[int, ...]]
    tolerance: float = 0.0  # relative, for functions that PTX leaves approximate

    @property
    def name(self) -> str:
        return self.text.split(";")[0]


WHOLE = ("u16", "s16", "u32", "s32", "u64", "s64")


def integer_rows() -> Iterator[Row]:
    for t in WHOLE:
        two = {
            f"add.{t}": lambda a, b: a + b,
            f"sub.{t}": lambda a, b: a - b,
            f"mul.lo.{t}": lambda a, b: a * b,
            f"mul.hi.{t}": lambda a, b, t=t: a * b >> WIDTH[t],
            f"min.{t}": min,
            f"max.{t}": max,
            f"div.{t}": lambda a, b: quotient(a, b) if b else -1,
            f"rem.{t}": lambda a, b: a - quotient(a, b) * b if b else a,
        }
        for name, f in two.items():
            yield whole_row(f"{name} %d, %a, %b;", (t, t), t, f)
        three = {
            f"mad.lo.{t}": lambda a, b, c: a * b + c,
            f"mad.hi.{t}": lambda a, b, c, t=t: (a * b >> WIDTH[t]) + c,
            f"sad.{t}": lambda a, b, c: c + abs(a - b),
        }
        for name, f in three.items():
            yield whole_row(f"{name} %d, %a, %b, %c;", (t, t, t), t, f)
        if t[0] == "s":
            yield whole_row(f"abs.{t} %d, %a;", (t,), t, abs)
            yield whole_row(f"neg.{t} %d, %a;", (t,), t, lambda a: -a)
        if WIDTH[t] < 64:
            wide = t[0] + str(2 * WIDTH[t])
            yield whole_row(f"mul.wide.{t} %d, %a, %b;", (t, t), wide, lambda a, b: a * b)
            yield whole_row(
                f"mad.wide.{t} %d, %a, %b, %c;", (t, t, wide), wide, lambda a, b, c: a * b + c
            )
    for op, f in (("add", lambda a, b: a + b), ("sub", lambda a, b: a - b)):
        yield whole_row(f"{op}.sat.s32 %d, %a, %b;", ("s32",) * 2, "s32",
                        lambda a, b, f=f: clamp(f(a, b), "s32"))  # fmt: skip
    for t in ("u32", "s32"):
        low = lambda x, t=t: number(x << 8, t) >> 8  # noqa: E731
        yield whole_row(f"mul24.lo.{t} %d, %a, %b;", (t, t), t,
                        lambda a, b, low=low: low(a) * low(b))  # fmt: skip
        yield whole_row(f"mul24.hi.{t} %d, %a, %b;", (t, t), t,
                        lambda a, b, low=low: low(a) * low(b) >> 16)  # fmt: skip
        yield whole_row(f"mad24.lo.{t} %d, %a, %b, %c;", (t,) * 3, t,
                        lambda a, b, c, low=low: low(a) * low(b) + c)  # fmt: skip
    yield from carry_rows()


def whole_row(text: str, sources: tuple[str, ...], result: str, f: Callable[..., int]) -> Row:
    def model(*bits: int) -> int:
        return cut(f(*(number(b, t) for b, t in zip(bits, sources, strict=True))), result)

    return Row(text, sources, (result,), model)


def clamp(value: int, kind: str) -> int:
    least, most = number_range(kind)
    return min(max(value, least), most)


def carry_rows() -> Iterator[Row]:
    for n in (32, 64):
        t, mask = f"u{n}", (1 << n) - 1
        # The carry out of the low half goes into the high half, so this is a double-width sum.
        yield Row(
            f"add.cc.{t} %d, %a, %b; addc.{t} %e, %c, %g;", (t,) * 4, (t,) * 2,
            lambda a, b, c, g, n=n, mask=mask: split((c << n | a) + (g << n | b), n, mask),
        )  # fmt: skip
        yield Row(
            f"sub.cc.{t} %d, %a, %b; subc.{t} %e, %c, %g;", (t,) * 4, (t,) * 2,
            lambda a, b, c, g, n=n, mask=mask: split((c << n | a) - (g << n | b), n, mask),
        )  # fmt: skip
        yield Row(
            f"mad.lo.cc.{t} %d, %a, %b, %c; madc.hi.{t} %e, %a, %b, %g;", (t,) * 4, (t,) * 2,
            lambda a, b, c, g, n=n, mask=mask: split(a * b + (g << n | c), n, mask),
        )  # fmt: skip


def split(value: int, n: int, mask: int) -> tuple[int, int]:
    return value & mask, value >> n & mask


def reverse(a: int, n: int) -> int:
    return int(f"{a:0{n}b}"[::-1], 2)


def extract(a: int, b: int, c: int, t: str) -> int:
    """Model bfe as PTX describes it, bit by bit."""
    n, position, length = WIDTH[t], b & 0xFF, c & 0xFF
    sign = 0
    if t[0] == "s" and length:
        sign = a >> min(position + length - 1, n - 1) & 1
    bits = [(a >> (position + i) & 1) if i < length and position + i < n else sign
            for i in range(n)]  # fmt: skip
    return sum(bit << i for i, bit in enumerate(bits))


def insert(a: int, b: int, c: int, g: int, n: int) -> int:
    position, length = c & 0xFF, g & 0xFF
    for i in range(length):
        if position + i < n and i < n:
            b = b & ~(1 << (position + i)) | (a >> i & 1) << (position + i)
    return b


def permute(a: int, b: int, c: int) -> int:
    source = struct.pack("<II", a, b)
    out = 0
    for i in range(4):
        select = c >> (4 * i) & 15
        byte = source[select & 7]
        out |= ((0xFF if byte & 0x80 else 0) if select & 8 else byte) << (8 * i)
    return out


def look_up(a: int, b: int, c: int, table: int) -> int:
    return sum((table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1) & 1) << i
               for i in range(32))  # fmt: skip


def highest(a: int, t: str) -> int:
    value = number(a, t)
    bits = ~value if value < 0 else value
    return bits.bit_length() - 1 if bits else 0xFFFFFFFF


def bit_rows() -> Iterator[Row]:
    for n in (16, 32, 64):
        t, mask = f"b{n}", (1 << n) - 1
        yield Row(f"and.{t} %d, %a, %b;", (t, t), (t,), lambda a, b: a & b)
        yield Row(f"or.{t} %d, %a, %b;", (t, t), (t,), lambda a, b: a | b)
        yield Row(f"xor.{t} %d, %a, %b;", (t, t), (t,), lambda a, b: a ^ b)
        yield Row(f"not.{t} %d, %a;", (t,), (t,), lambda a, m=mask: a ^ m)
        yield Row(f"cnot.{t} %d, %a;", (t,), (t,), lambda a: int(a == 0))
        yield Row(f"shl.{t} %d, %a, %b;", (t, "shift"), (t,),
                  lambda a, b, n=n, m=mask: a << b & m if b < n else 0)  # fmt: skip
        for s in (f"u{n}", f"s{n}"):
            yield Row(f"shr.{s} %d, %a, %b;", (s, "shift"), (s,),
                      lambda a, b, s=s: cut(number(a, s) >> min(b, WIDTH[s]), s))  # fmt: skip
    for n in (32, 64):
        t, mask = f"b{n}", (1 << n) - 1
        yield Row(f"brev.{t} %d, %a;", (t,), (t,), lambda a, n=n: reverse(a, n))
        yield Row(f"popc.{t} %d, %a;", (t,), ("u32",), lambda a: a.bit_count())
        yield Row(f"clz.{t} %d, %a;", (t,), ("u32",), lambda a, n=n: n - a.bit_length())
        yield Row(f"bfi.{t} %d, %a, %b, %c, %g;", (t, t, "shift", "shift"), (t,),
                  lambda a, b, c, g, n=n: insert(a, b, c, g, n))  # fmt: skip
        for s in (f"u{n}", f"s{n}"):
            yield Row(f"bfe.{s} %d, %a, %b, %c;", (s, "shift", "shift"), (s,),
                      lambda a, b, c, s=s: extract(a, b, c, s))  # fmt: skip
            yield Row(f"bfind.{s} %d, %a;", (s,), ("u32",), lambda a, s=s: highest(a, s))
            yield Row(f"bfind.shiftamt.{s} %d, %a;", (s,), ("u32",),
                      lambda a, s=s, n=n: n - 1 - h if (h := highest(a, s)) < n else h)  # fmt: skip
    word, two = "b32", ("b32",) * 2
    yield Row("prmt.b32 %d, %a, %b, %c;", (word,) * 3, (word,), permute)
    for table in (0x80, 0x96, 0xE8, 0xFE, 0x1B, 0x00, 0xFF):
        yield Row(f"lop3.b32 %d, %a, %b, %c, {table};", (word,) * 3, (word,),
                  lambda a, b, c, table=table: look_up(a, b, c, table))  # fmt: skip
    both = lambda a, b: b << 32 | a  # noqa: E731
    yield Row("shf.l.wrap.b32 %d, %a, %b, %c;", (*two, "shift"), (word,),
              lambda a, b, c: cut(both(a, b) << (c & 31) >> 32, word))  # fmt: skip
    yield Row("shf.l.clamp.b32 %d, %a, %b, %c;", (*two, "shift"), (word,),
              lambda a, b, c: cut(both(a, b) << min(c, 32) >> 32, word))  # fmt: skip
    yield Row("shf.r.wrap.b32 %d, %a, %b, %c;", (*two, "shift"), (word,),
              lambda a, b, c: cut(both(a, b) >> (c & 31), word))  # fmt: skip
    yield Row("shf.r.clamp.b32 %d, %a, %b, %c;", (*two, "shift"), (word,),
              lambda a, b, c: cut(both(a, b) >> min(c, 32), word))  # fmt: skip
    for t, u in (("u32", "u32"), ("s32", "s32"), ("u32", "s32"), ("s32", "u32")):
        yield Row(f"dp4a.{t}.{u} %d, %a, %b, %c;", (t, u, "s32"), ("s32",),
                  lambda a, b, c, t=t, u=u: dot(a, b, c, t, u))  # fmt: skip
    yield Row("bmsk.clamp.b32 %d, %a, %b;", ("shift", "shift"), (word,),
              lambda a, b: cut(((1 << min(b, 32)) - 1) << min(a, 32), word))  # fmt: skip
    yield Row("szext.wrap.s32 %d, %a, %b;", ("s32", "shift"), ("s32",),
              lambda a, b: cut(number(a << (32 - (b & 31)), "s32") >> (32 - (b & 31)), "s32")
              if b & 31 else 0)  # fmt: skip


def dot(a: int, b: int, c: int, t: str, u: str) -> int:
    bytes_a = struct.unpack("<4b" if t[0] == "s" else "<4B", struct.pack("<I", a))
    bytes_b = struct.unpack("<4b" if u[0] == "s" else "<4B", struct.pack("<I", b))
    return cut(c + sum(x * y for x, y in zip(bytes_a, bytes_b, strict=True)), "u32")


def ordered(op: str) -> Callable[[float, float], bool]:
    return getattr(operator, op)


def compare_rows() -> Iterator[Row]:
    for t in (*WHOLE, "f32", "f64", "f16", "bf16"):
        value = number if t in WHOLE else real
        for op in ("eq", "ne", "lt", "le", "gt", "ge"):
            f = ordered(op)
            yield Row(f"setp.{op}.{t} %d|%e, %a, %b;", (t, t), ("pred", "pred"),
                      lambda a, b, t=t, f=f, v=value: both_ways(f, v(a, t), v(b, t)))  # fmt: skip
            if t in WHOLE:
                continue
            yield Row(f"setp.{op}u.{t} %d, %a, %b;", (t, t), ("pred",),
                      lambda a, b, t=t, f=f: int(f(real(a, t), real(b, t)) or
                                                 unordered(a, b, t)))  # fmt: skip
        if t not in WHOLE:
            yield Row(f"setp.num.{t} %d, %a, %b;", (t, t), ("pred",),
                      lambda a, b, t=t: int(not unordered(a, b, t)))  # fmt: skip
            yield Row(f"setp.nan.{t} %d, %a, %b;", (t, t), ("pred",),
                      lambda a, b, t=t: int(unordered(a, b, t)))  # fmt: skip
    for op, f in (("and", lambda x, y: x & y), ("or", lambda x, y: x | y),
                  ("xor", lambda x, y: x ^ y)):  # fmt: skip
        yield Row(f"setp.lt.s32 %p1, %c, %g; setp.gt.{op}.s32 %d|%e, %a, %b, !%p1;", ("s32",) * 4,
                  ("pred", "pred"), lambda a, b, c, g, f=f: combined(f, a, b, c, g))  # fmt: skip
    for t in ("u16", "s32", "u64", "f32", "f64"):
        yield Row(f"setp.lt.s32 %p1, %c, %g; selp.{t} %d, %a, %b, %p1;", (t, t, "s32", "s32"), (t,),
                  lambda a, b, c, g: a if number(c, "s32") < number(g, "s32") else b)  # fmt: skip
        yield Row(f"slct.{t}.s32 %d, %a, %b, %c;", (t, t, "s32"), (t,),
                  lambda a, b, c: a if number(c, "s32") >= 0 else b)  # fmt: skip
        yield Row(f"slct.{t}.f32 %d, %a, %b, %c;", (t, t, "f32"), (t,),
                  lambda a, b, c: a if real(c, "f32") >= 0 else b)  # fmt: skip
    yield Row("set.lt.u32.f32 %d, %a, %b;", ("f32",) * 2, ("u32",),
              lambda a, b: 0xFFFFFFFF if real(a, "f32") < real(b, "f32") else 0)  # fmt: skip
    yield Row("set.ge.f32.s32 %d, %a, %b;", ("s32",) * 2, ("f32",),
              lambda a, b: encode(float(number(a, "s32") >= number(b, "s32")), "f32"))  # fmt: skip


def unordered(a: int, b: int, t: str) -> bool:
    return math.isnan(real(a, t)) or math.isnan(real(b, t))


def both_ways(f: Callable[[float, float], bool], a: float, b: float) -> tuple[int, int]:
    # Ordered comparisons with a NaN are false, and so is !=.
    found = f(a, b) and not (math.isnan(a) or math.isnan(b))
    return int(found), int(not found)


def combined(f: Callable[[int, int], int], a: int, b: int, c: int, g: int) -> tuple[int, int]:
    found = int(number(a, "s32") > number(b, "s32"))
    other = 1 - int(number(c, "s32") < number(g, "s32"))
    return f(found, other), f(1 - found, other)


def least(kind: str, *, most: bool) -> Callable[[int, int], int]:
    def model(a: int, b: int) -> int:
        x, y = real(a, kind), real(b, kind)
        if math.isnan(x) or math.isnan(y):
            return encode(x if math.isnan(y) else y, kind)
        key = (x, math.copysign(1, x)), (y, math.copysign(1, y))
        return encode((max(key) if most else min(key))[0], kind)

    return model


def float_rows() -> Iterator[Row]:
    exact = {
        "add": (2, lambda a, b: a + b),
        "sub": (2, lambda a, b: a - b),
        "mul": (2, lambda a, b: a * b),
    }
    for t in ("f32", "f64"):
        for mode in ("rn", "rz", "rm", "rp"):
            for op, (_, f) in exact.items():
                model = arithmetic(f, t, mode[1])
                yield Row(f"{op}.{mode}.{t} %d, %a, %b;", (t, t), (t,), model)
            model = arithmetic(fused, t, mode[1])
            yield Row(f"fma.{mode}.{t} %d, %a, %b, %c;", (t,) * 3, (t,), model)
            model = arithmetic(divided, t, mode[1])
            yield Row(f"div.{mode}.{t} %d, %a, %b;", (t, t), (t,), model)
            model = arithmetic(lambda a: divided(type(a)(1), a), t, mode[1])
            yield Row(f"rcp.{mode}.{t} %d, %a;", (t,), (t,), model)
        yield Row(f"sqrt.rn.{t} %d, %a;", (t,), (t,), lambda a, t=t: square_root(a, t))
        for op in ("min", "max"):
            yield Row(f"{op}.{t} %d, %a, %b;", (t, t), (t,), least(t, most=op == "max"))
        sign = 1 << (WIDTH[t] - 1)
        yield Row(f"abs.{t} %d, %a;", (t,), (t,), lambda a, s=sign: a & ~s)
        yield Row(f"neg.{t} %d, %a;", (t,), (t,), lambda a, s=sign: a ^ s)
        yield Row(f"copysign.{t} %d, %a, %b;", (t, t), (t,),
                  lambda a, b, s=sign: (a & s) | (b & ~s))  # fmt: skip
        yield Row(f"testp.finite.{t} %d, %a;", (t,), ("pred",),
                  lambda a, t=t: int(math.isfinite(real(a, t))))  # fmt: skip
        yield Row(f"testp.notanumber.{t} %d, %a;", (t,), ("pred",),
                  lambda a, t=t: int(math.isnan(real(a, t))))  # fmt: skip
        yield Row(f"testp.subnormal.{t} %d, %a;", (t,), ("pred",),
                  lambda a, t=t: int(0 < abs(real(a, t)) < 2.0 ** (-126 if t == "f32" else -1022))
                  )  # fmt: skip
    for op, (_, f) in exact.items():
        model = arithmetic(f, "f32")
        yield Row(f"{op}.sat.f32 %d, %a, %b;", ("f32",) * 2, ("f32",),
                  lambda a, b, m=model: saturated(m(a, b), "f32"))  # fmt: skip
        yield Row(f"{op}.ftz.f32 %d, %a, %b;", ("f32",) * 2, ("f32",),
                  lambda a, b, m=model: flushed(m(flushed(a), flushed(b))))  # fmt: skip
    yield from function_rows()
    yield from half_rows()


def fused(a: float, b: float, c: float) -> float:
    """Exact for fractions; for floats it is used only for special values and zeros."""
    return a * b + c


def divided(a: float, b: float) -> float:
    if b != 0:
        return a / b
    if isinstance(b, Fraction):
        return Fraction(0)  # leaves the question to the floats
    if a == 0 or math.isnan(a):
        return math.nan
    return math.copysign(math.inf, math.copysign(1, a) * math.copysign(1, b))


def square_root(a: int, t: str) -> int:
    x = real(a, t)
    if x < 0:
        return encode(math.nan, t)
    if not math.isfinite(x) or x == 0:
        return encode(x, t)
    scale = 1 << 700  # enough bits to decide any rounding
    value = Fraction(x)
    return rounded(Fraction(math.isqrt(value.numerator * scale * scale // value.denominator),
                            scale), t)  # fmt: skip


def flushed(bits: int) -> int:
    return bits & 0x80000000 if abs(real(bits, "f32")) < 2.0**-126 else bits


def function_rows() -> Iterator[Row]:
    functions = {
        "sin.approx": math.sin,
        "cos.approx": math.cos,
        "ex2.approx": lambda x: 2.0**x,
        "lg2.approx": math.log2,
        "rsqrt.approx": lambda x: 1 / math.sqrt(x),
        "sqrt.approx": math.sqrt,
        "rcp.approx": lambda x: 1 / x,
        "tanh.approx": math.tanh,
    }
    for op, f in functions.items():
        yield Row(f"{op}.f32 %d, %a;", ("positive",), ("f32",),
                  lambda a, f=f: encode(f(real(a, "f32")), "f32"), 1e-6)  # fmt: skip
    yield Row("div.full.f32 %d, %a, %b;", ("positive",) * 2, ("f32",),
              lambda a, b: encode(real(a, "f32") / real(b, "f32"), "f32"), 1e-6)  # fmt: skip


def half_rows() -> Iterator[Row]:
    for t in ("f16", "bf16"):
        pair = f"{t}x2"
        table = {
            "add.rn": (2, arithmetic(lambda a, b: a + b, t)),
            "sub.rn": (2, arithmetic(lambda a, b: a - b, t)),
            "mul.rn": (2, arithmetic(lambda a, b: a * b, t)),
            "fma.rn": (3, arithmetic(fused, t)),
            "min": (2, least(t, most=False)),
            "max": (2, least(t, most=True)),
            "neg": (1, lambda a: a ^ 0x8000),
            "abs": (1, lambda a: a & 0x7FFF),
        }
        for op, (count, model) in table.items():
            places = ", ".join(["%a", "%b", "%c"][:count])
            yield Row(f"{op}.{t} %d, {places};", (t,) * count, (t,), model)
            yield Row(f"{op}.{pair} %d, {places};", (pair,) * count, (pair,),
                      lambda *bits, m=model: m(*(b & 0xFFFF for b in bits))
                      | m(*(b >> 16 for b in bits)) << 16)  # fmt: skip


def convert_rows() -> Iterator[Row]:
    whole = ("u8", "s8", *WHOLE)
    for to in whole:
        for source in whole:
            yield Row(f"cvt.{to}.{source} %d, %a;", (source,), (to,),
                      lambda a, to=to, s=source: cut(number(a, s), to))  # fmt: skip
            yield Row(f"cvt.sat.{to}.{source} %d, %a;", (source,), (to,),
                      lambda a, to=to, s=source: cut(clamp(number(a, s), to), to))  # fmt: skip
    for source in ("f16", "f32", "f64"):
        for to in whole:
            for mode in ("rni", "rzi", "rmi", "rpi"):
                yield Row(f"cvt.{mode}.{to}.{source} %d, %a;", (source,), (to,),
                          lambda a, to=to, s=source, m=mode[1]:
                          float_to_int(real(a, s), s, to, m))  # fmt: skip
    yield from convert_to_real_rows()


def convert_to_real_rows() -> Iterator[Row]:
    for to in ("f16", "f32", "f64"):
        for source in WHOLE:
            for mode in ("rn", "rz", "rm", "rp"):
                yield Row(f"cvt.{mode}.{to}.{source} %d, %a;", (source,), (to,),
                          lambda a, to=to, s=source, m=mode[1]:
                          rounded(Fraction(number(a, s)), to, m))  # fmt: skip
    yield from convert_real_to_real_rows()


def convert_real_to_real_rows() -> Iterator[Row]:
    for to, source, modes in (
        ("f32", "f64", ("rn", "rz", "rm", "rp")),
        ("f16", "f32", ("rn", "rz")),
        ("bf16", "f32", ("rn", "rz")),
        ("f16", "f64", ("rn", "rz", "rm", "rp")),
    ):
        for mode in modes:
            yield Row(f"cvt.{mode}.{to}.{source} %d, %a;", (source,), (to,),
                      lambda a, to=to, s=source, m=mode[1]: narrowed(a, s, to, m))  # fmt: skip
    for to, source in (("f64", "f32"), ("f32", "f16"), ("f64", "f16"), ("f32", "bf16")):
        yield Row(f"cvt.{to}.{source} %d, %a;", (source,), (to,),
                  lambda a, to=to, s=source: narrowed(a, s, to, "n"))  # fmt: skip
    for mode in ("rni", "rzi", "rmi", "rpi"):
        for t in ("f32", "f64"):
            yield Row(f"cvt.{mode}.{t}.{t} %d, %a;", (t,), (t,),
                      lambda a, t=t, m=mode[1]: whole_real(a, t, m))  # fmt: skip
    yield Row("cvt.rn.f16x2.f32 %d, %a, %b;", ("f32",) * 2, ("f16x2",),
              lambda a, b: narrowed(a, "f32", "f16", "n") << 16 | narrowed(b, "f32", "f16", "n")
              )  # fmt: skip


def narrowed(bits: int, source: str, to: str, mode: str) -> int:
    x = real(bits, source)
    if not math.isfinite(x) or x == 0:
        return encode(x, to)
    return rounded(Fraction(x), to, mode)


def whole_real(bits: int, t: str, mode: str) -> int:
    x = real(bits, t)
    if not math.isfinite(x):
        return encode(x, t)
    modes = {"n": round, "z": math.trunc, "m": math.floor, "p": math.ceil}
    return encode(math.copysign(float(modes[mode](Fraction(x))), x), t)


def rows() -> list[Row]:
    return [*integer_rows(), *bit_rows(), *compare_rows(), *float_rows(), *convert_rows()]
