"""Recordings of `tandem trace calls`, compressed; `make gpu PART=traces` makes them.

Those with `-software` in their name are of the software GPU. See docs/benchmarks.md.
"""

import lzma
from pathlib import Path

from tandem.trace.file import Recording, parse

FOLDER = Path(__file__).parent


def names() -> list[str]:
    """Of all that are here."""
    return sorted(path.stem for path in FOLDER.glob("*.xz"))


def load(name: str) -> Recording:
    """One of them."""
    return parse(lzma.decompress((FOLDER / f"{name}.xz").read_bytes()))
