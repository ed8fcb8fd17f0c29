"""How figures are told to people."""


def size_of(size_bytes: int) -> str:
    """`1.5 GiB`, in the largest unit of which there is one."""
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size_bytes >= 1 << shift:
            return f"{round(size_bytes / (1 << shift), 1):g} {unit}"
    return f"{size_bytes} B"
