"""How figures and names are presented to people."""

from math import inf

_SIZES = ("B", "KiB", "MiB", "GiB", "TiB")
_PHASES = ("forward", "backward", "update", "prefill", "decode")


def size_of(size_bytes: float, largest: int = len(_SIZES) - 1) -> str:
    """`1.5 GiB`, `512 MiB`, `12 B`: as `tandem.units.format_bytes`, which the core must not import.

    `largest`: index of the largest unit to use, 1 for KiB.
    """
    value, index = float(abs(size_bytes)), 0
    while round(value, 1) >= 1024 and index < largest:
        value, index = value / 1024, index + 1
    sign = "-" if size_bytes < 0 else ""
    return f"{sign}{value:.1f}".removesuffix(".0") + f" {_SIZES[index]}"


def sizes_apart(one: int, other: int) -> tuple[str, str]:
    """Two sizes in units in which only equal sizes read alike: `1025 MiB`, `1024 MiB`."""
    for largest in range(len(_SIZES) - 1, 0, -1):
        told = (size_of(one, largest), size_of(other, largest))
        if told[0] != told[1] or one == other:
            return told
    return f"{one} B", f"{other} B"


def counted(count: int, what: str) -> str:
    """`1 group`, `2 groups`."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def span_of(duration_ns: float) -> str:
    """`5.0 ms`, `120 ms`, `2.1 s`, `59 s`, `11 min`, `without end`."""
    if duration_ns == inf:
        return "without end"
    if duration_ns < 1_000_000_000:
        return f"{duration_ns / 1e6:.{0 if duration_ns >= 10_000_000 else 1}f} ms"
    seconds = duration_ns / 1e9
    if seconds < 10:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s" if seconds < 600 else f"{seconds / 60:.0f} min"


def phase_name(phase_hash: int) -> str:
    """`phase backward` if the name is a usual one; jobs report only its hash."""
    return f"phase {_NAMES.get(phase_hash, f'{phase_hash:016x}')}"


def fnv1a(text: bytes) -> int:
    """The 64-bit FNV-1a hash."""
    value = 0xCBF29CE484222325
    for byte in text:
        value = (value ^ byte) * 0x100000001B3 & ((1 << 64) - 1)
    return value


_NAMES = {fnv1a(name.encode()): name for name in _PHASES}
