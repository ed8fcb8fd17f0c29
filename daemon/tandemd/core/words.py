"""How figures and names are told to people."""

_PHASES = ("forward", "backward", "update", "prefill", "decode")


def size_of(size_bytes: int) -> str:
    """`1.5 GiB`, in the largest unit of which there is one."""
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size_bytes >= 1 << shift:
            return f"{round(size_bytes / (1 << shift), 1):g} {unit}"
    return f"{size_bytes} B"


def phase_name(phase_hash: int) -> str:
    """`phase backward`, where the name is a usual one; jobs tell the hash of it."""
    return f"phase {_NAMES.get(phase_hash, f'{phase_hash:016x}')}"


def fnv1a(text: bytes) -> int:
    """The 64-bit FNV-1a hash."""
    value = 0xCBF29CE484222325
    for byte in text:
        value = (value ^ byte) * 0x100000001B3 & ((1 << 64) - 1)
    return value


_NAMES = {fnv1a(name.encode()): name for name in _PHASES}
