"""Parse and format sizes, times and shares; the only module that knows human units.

All other code uses int bytes and int nanoseconds. Sizes are binary: `20GiB`, `20G` and `20g` are
the same, as in docker and HAMi; `20GB` is decimal, as its letters say. A bare number is bytes.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from tandem.errors import UsageError

_NUMBER = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([^\s\d]*)\s*", re.ASCII)
_MAX = 2**63 - 1  # int64 on the wire

_BINARY = {letter: 1024 ** (i + 1) for i, letter in enumerate("kmgt")}
_BYTES = (
    {"": 1, "b": 1}
    | _BINARY
    | {f"{letter}ib": size for letter, size in _BINARY.items()}
    | {f"{letter}b": 1000 ** (i + 1) for i, letter in enumerate("kmgt")}
)
_NANOSECONDS = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "min": 60_000_000_000,
    "h": 3_600_000_000_000,
    "d": 86_400_000_000_000,
}
_BYTES_HINT = "use bytes or B, KiB, MiB, GiB, TiB (also K, M, G, T) or KB, MB, GB, TB"
_TIME_HINT = "use ns, us, ms, s, min, h or d"
_MOST_SMS = 9999  # upper limit for a number of SMs, whatever the GPU
_GRANULE = 2 << 20  # a GPU allocates memory in no smaller pieces


@dataclass(frozen=True, slots=True, kw_only=True)
class Percent:
    """A share of something whose size is not yet known, 0 < value <= 100."""

    value: int


def parse_bytes(text: str, *, what: str = "size") -> int:
    """Parse bytes from `20GiB`, `8g`, `1.5T`, `4096`; `what` names the value in the error.

    Raises:
        UsageError: no number, an unknown unit, a fraction of a byte, or more than int64 holds.
    """
    return _parse(text, units=_BYTES, what=what, hint=_BYTES_HINT, fold=True)


def parse_memory(text: str, *, what: str = "size") -> int | Percent:
    """Parse a limit of GPU memory: as `parse_device_bytes`, or a share such as `40%`.

    Raises:
        UsageError: as parse_device_bytes, 0, or a share outside 1..100.
    """
    if text.strip().endswith("%"):
        return Percent(value=parse_percent(text, what=what))
    hint = f"{_BYTES_HINT}, or a share: 40%"
    size_bytes = _parse(text, units=_BYTES, what=what, hint=hint, fold=True)
    if size_bytes == 0:
        raise UsageError(
            f"{what} {text!r} would leave the job no memory; for no limit omit it, or give none "
            "to `tandem set`"
        )
    _refuse_tiny(text, size_bytes, what=what)
    return size_bytes


def parse_device_bytes(text: str, *, what: str = "size") -> int:
    """Like `parse_bytes`, for GPU memory: refuses a bare `20`, since nobody means 20 bytes.

    Raises:
        UsageError: as parse_bytes, or a number without a unit that is below 2 MiB but not 0.
    """
    size_bytes = parse_bytes(text, what=what)
    _refuse_tiny(text, size_bytes, what=what)
    return size_bytes


def _refuse_tiny(text: str, size_bytes: int, *, what: str) -> None:
    match = _NUMBER.fullmatch(text)
    if match is not None and not match[2] and 0 < size_bytes < _GRANULE:
        raise UsageError(
            f"{what} {text!r} is {format_bytes(size_bytes)}, less than a GPU gives out at a time; "
            f"write the unit: {match[1]}GiB, or {match[1]}B if that is meant"
        )


def parse_percent(text: str, *, what: str = "share") -> int:
    """Parse a whole percentage from `40%` or `40`, 1..100.

    Raises:
        UsageError: anything else.
    """
    match = re.fullmatch(r"\s*(\d{1,6})\s*%?\s*", text, re.ASCII)
    if match is None or not 1 <= int(match[1]) <= 100:
        raise UsageError(f"{what} {text!r} is not a share; use a whole percentage from 1% to 100%")
    return int(match[1])


def parse_sm(text: str, *, what: str = "sm") -> int | Percent:
    """Parse a share of the SMs such as `30%`, or a number of SMs.

    Raises:
        UsageError: anything else.
    """
    if text.strip().endswith("%"):
        return Percent(value=parse_percent(text, what=what))
    match = re.fullmatch(r"\s*0*(\d*)\s*", text, re.ASCII)
    if match is None or not text.strip():
        raise UsageError(f"{what} {text!r} is neither a share (30%) nor a number of SMs (40)")
    digits = match[1]
    if not digits or len(digits) > len(str(_MOST_SMS)):
        raise UsageError(
            f"{what} {_short(text)} is not a number of SMs from 1 to {_MOST_SMS}; `tandem gpus` "
            "shows how many a GPU has; or give a share such as 30%"
        )
    return int(digits)


def parse_duration(text: str, *, what: str = "duration") -> int:
    """Parse nanoseconds from `50ms`, `2s`, `1.5h`; a bare number has no unit and is refused.

    Raises:
        UsageError: no number, a missing or unknown unit, a fraction of a nanosecond, or too much.
    """
    return _parse(text, units=_NANOSECONDS, what=what, hint=_TIME_HINT, fold=False)


def parse_moment(text: str, *, now_ns: int, what: str = "time") -> int:
    """Parse nanoseconds since 1970 from `2h`, meaning two hours ago, or from an ISO 8601 date.

    A date without a time means its beginning; one without an offset is in local time.

    Raises:
        UsageError: neither of them, or before 1970 or after 2262.
    """
    from datetime import datetime  # imported here: few commands need it

    if _NUMBER.fullmatch(text) and not text.strip().isdigit():
        moment_ns = now_ns - parse_duration(text, what=what)
    else:
        try:
            moment_ns = round(datetime.fromisoformat(text.strip()).timestamp()) * 10**9
        except (ValueError, OverflowError, OSError) as exc:
            raise UsageError(
                f"{what} {text!r} is neither so long ago, such as 2h or 7d, nor a date such as "
                "2026-01-31 or 2026-01-31T18:00"
            ) from exc
    if not 0 <= moment_ns <= _MAX:
        raise UsageError(f"{what} {text!r} is not between 1970 and 2262")
    return moment_ns


def format_moment(moment_ns: int) -> str:
    """`2026-01-31 18:00:05`: in local time, for display only."""
    from datetime import datetime

    return f"{datetime.fromtimestamp(moment_ns // 10**9).astimezone():%Y-%m-%d %H:%M:%S}"


def parse_slo(text: str, *, what: str = "slo") -> int:
    """Parse the 99th percentile in nanoseconds from `p99=50ms`.

    Raises:
        UsageError: another form, or a bad or zero duration.
    """
    key, _, value = text.partition("=")
    if key.strip() != "p99" or not value:
        raise UsageError(f"{what} {text!r} is not an objective; write it as p99=50ms")
    duration_ns = parse_duration(value, what=what)
    if duration_ns == 0:
        raise UsageError(f"{what} {text!r} is zero; no request ends in no time")
    return duration_ns


def _short(text: str) -> str:
    """`text` quoted, and cut off where nobody would read on."""
    return repr(text if len(text) <= 40 else f"{text[:40]}..")


def exact_bytes(size_bytes: int) -> str:
    """`20GiB`, `1025B`: exact, in the largest unit that allows it; `parse_bytes` reads it back."""
    return _exact(size_bytes, {"TiB": 1 << 40, "GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10}, "B")


def exact_duration(duration_ns: int) -> str:
    """`600s`, `50ms`: exact, in the largest unit that allows it, for `parse_duration`."""
    return _exact(duration_ns, {"s": 10**9, "ms": 10**6, "us": 10**3}, "ns")


def _exact(number: int, units: Mapping[str, int], smallest: str) -> str:
    for name, scale in units.items():
        if number and number % scale == 0:
            return f"{number // scale}{name}"
    return f"{number}{smallest}"


def format_bytes(size_bytes: int) -> str:
    """`1.5 GiB`, `512 MiB`, `12 B`: at most one decimal, binary units, for display only."""
    return _scaled(size_bytes, step=1024, names=("B", "KiB", "MiB", "GiB", "TiB"))


def format_duration(duration_ns: int) -> str:
    """`14 ms`, `1.5 s`, `3:12`, `2d4h`: for display only."""
    if abs(duration_ns) >= 60_000_000_000:
        sign = "-" if duration_ns < 0 else ""
        return sign + _clock(abs(duration_ns) // 1_000_000_000)
    return _scaled(duration_ns, step=1000, names=("ns", "us", "ms", "s"))


def format_energy(energy_mj: int) -> str:
    """`12 J`, `3.4 kJ`, `1.2 MJ`: from millijoules, for display only."""
    return _scaled(energy_mj, step=1000, names=("mJ", "J", "kJ", "MJ", "GJ"))


def _scaled(amount: int, *, step: int, names: tuple[str, ...]) -> str:
    value, index = float(abs(amount)), 0
    # Round before comparing: 1023.99 MiB reads as 1 GiB, never as 1024 MiB.
    while round(value, 1) >= step and index < len(names) - 1:
        value, index = value / step, index + 1
    sign = "-" if amount < 0 else ""
    return f"{sign}{value:.1f}".removesuffix(".0") + f" {names[index]}"


def _clock(seconds: int) -> str:
    if seconds >= 86400:
        return f"{seconds // 86400}d{seconds % 86400 // 3600}h"
    hours, minutes, rest = seconds // 3600, seconds % 3600 // 60, seconds % 60
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _parse(text: str, *, units: dict[str, int], what: str, hint: str, fold: bool) -> int:
    match = _NUMBER.fullmatch(text)
    if match is None and _NUMBER.fullmatch(text.strip().removeprefix("-")):
        raise UsageError(f"{what} {text!r} is negative; {hint}")
    if match is None:
        raise UsageError(f"{what} {text!r} is not a number with a unit; {hint}")
    number, unit = match[1], match[2]
    factor = units.get(unit.lower() if fold else unit)
    if factor is None:
        problem = f"has the unknown unit {unit!r}" if unit else "has no unit"
        raise UsageError(f"{what} {text!r} {problem}; {hint}")
    value = Decimal(number) * factor
    if value != int(value):
        raise UsageError(f"{what} {text!r} is not a whole number of the smallest unit; {hint}")
    if value > _MAX:
        raise UsageError(f"{what} {text!r} is more than {_MAX}")
    return int(value)
