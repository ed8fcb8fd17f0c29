"""Text that somebody else chose, such as names of jobs, kernels and keys."""

from __future__ import annotations


def printable(text: str) -> str:
    """`text` without what moves a terminal's cursor, turns text around or cannot be seen."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)
