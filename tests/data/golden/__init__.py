"""What builds of the past put on the wire and into the shared pages.

Kept for ever: today's code has to be able to read them. README.md says how they were made.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).parent
ROW_BYTES = 16
TYPES = {
    1: "HELLO",
    2: "WELCOME",
    3: "MAPPED",
    4: "PRESENCE",
    5: "PRESENCE_GONE",
    6: "REFUSED",
    7: "REGISTER",
    8: "REGISTERED",
    9: "SHARED",
    10: "USES",
    12: "HOST_POOL",
    13: "SWAP",
    14: "HOST_FILE",
    15: "HOST_BACK",
}


@dataclass(frozen=True)
class Golden:
    """A job and its daemon, both of one build."""

    said: list[tuple[str, bytes]] = field(default_factory=list)  # by "job" or "daemon", in order
    pages: dict[str, bytes] = field(default_factory=dict)

    def of(self, who: str, kind: str) -> list[bytes]:
        """All messages of a type."""
        return [packet for by, packet in self.said if (by, kind_of(packet)) == (who, kind)]

    def text(self) -> str:
        """As it is kept: bytes in rows, without those that are all 0."""
        heads = [(f"{who} {kind_of(packet)}", packet) for who, packet in self.said]
        heads += [(f"page {name}", page) for name, page in self.pages.items()]
        sections = ([f"{head} {len(content)}", *_rows(content)] for head, content in heads)
        return "\n\n".join("\n".join(section) for section in sections) + "\n"


def kind_of(packet: bytes) -> str:
    """The type of a message, by its header."""
    return TYPES[int.from_bytes(packet[6:8], "little")]


def names() -> list[str]:
    """Of all that are here, oldest first."""
    return sorted(path.stem for path in FOLDER.glob("*.txt"))


def load(name: str) -> Golden:
    """One of them."""
    golden = Golden()
    sections = (FOLDER / f"{name}.txt").read_text().split("\n\n")
    for head, *rows in (section.splitlines() for section in sections):
        who, what, size = head.split()
        content = _content(rows, int(size))
        if who == "page":
            golden.pages[what] = content
        else:
            golden.said.append((who, content))
    return golden


def _content(rows: list[str], size: int) -> bytes:
    content = bytearray(size)
    for offset, digits in map(str.split, rows):
        row = bytes.fromhex(digits)
        content[int(offset, 16) : int(offset, 16) + len(row)] = row
    return bytes(content)


def _rows(content: bytes) -> list[str]:
    rows = ((at, content[at : at + ROW_BYTES]) for at in range(0, len(content), ROW_BYTES))
    return [f"{at:06x} {row.hex()}" for at, row in rows if any(row)]
