"""Text that somebody else chose, such as names of jobs, kernels and keys."""

from __future__ import annotations


def printable(text: str) -> str:
    """Replace characters in `text` that move the cursor, reverse text or are invisible."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)
