"""Reads the timeline of a software GPU line by line, whatever its size and however it ends."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tandem.errors import NotFoundError, UsageError

_LONGEST_LINE_BYTES = 64 * 1024  # longer than any line that the device writes
_LONGEST_NAME = 256
_INCOMPLETE = b'{"incomplete":true}'  # csrc/softgpu/device/server.cpp


class Row(NamedTuple):
    """One line: a part of an operation, or a context switch."""

    start_ns: int
    end_ns: int
    gpu: int
    context: int
    pid: int
    stream: int
    kind: str
    name: str
    sms: int
    bytes: int
    op: int
    client: int
    part: int
    last: bool
    ready_ns: int

    @property
    def label(self) -> str:
        """The display name."""
        return self.name or self.kind


class Timeline:
    """The rows of a file; `skipped_lines` counts lines that are not rows, such as truncated ones.

    `ends_early` tells whether the device noted that it could not write the file to its end.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.skipped_lines = 0
        self.ends_early = False
        self.size_bytes = 0

    def rows(self) -> Iterator[Row]:
        """Yield every row in the file's order: by their ends, for each of the device's clients.

        Raises:
            NotFoundError: there is no such file.
            UsageError: it cannot be read.
        """
        try:
            with self.path.open("rb") as file:
                while line := file.readline(_LONGEST_LINE_BYTES):
                    self.size_bytes += len(line)
                    row = _row(line)
                    if _says_incomplete(line):
                        self.ends_early = True
                    elif row is None:
                        self.skipped_lines += 1
                    else:
                        yield row
        except FileNotFoundError as exc:
            raise NotFoundError(f"there is no timeline '{self.path}'") from exc
        except OSError as exc:
            raise UsageError(f"timeline '{self.path}' cannot be read: {exc.strerror}") from exc


def ends_early(path: Path) -> bool:
    """Whether the device noted in the file that it could not write it to its end."""
    try:
        with path.open("rb") as file:
            file.seek(-min(_LONGEST_LINE_BYTES, path.stat().st_size), os.SEEK_END)
            return _says_incomplete(file.read().rstrip(b"\n").rpartition(b"\n")[2])
    except OSError:
        return False


def _says_incomplete(line: bytes) -> bool:
    return line.startswith(_INCOMPLETE)


def _row(line: bytes) -> Row | None:
    try:
        fields = json.loads(line)
        row = _fields(fields)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return row if 0 <= row.start_ns <= row.end_ns < 2**64 and row.bytes >= 0 else None


def _fields(fields: dict[str, Any]) -> Row:
    start_ns = int(fields["t_start_ns"])
    return Row(
        start_ns=start_ns,
        end_ns=int(fields["t_end_ns"]),
        gpu=int(fields["gpu"]),
        context=int(fields["context"]),
        pid=int(fields["pid"]),
        stream=int(fields["stream"]),
        kind=_text(fields["kind"]),
        name=_text(fields["name"]),
        sms=int(fields["sms"]),
        bytes=int(fields["bytes"]),
        op=int(fields["op"]),
        client=int(fields["client"]),
        part=int(fields["part"]),
        last=bool(fields["last"]),
        ready_ns=int(fields.get("t_ready_ns", start_ns)),
    )


def _text(value: object) -> str:
    """A name that can be written to any file: other users chose it."""
    return str(value)[:_LONGEST_NAME].encode("utf-8", "replace").decode()


def find_timeline(place: Path) -> tuple[Path, dict[str, Any]]:
    """The timeline that a file or a device's directory means, and the settings of the device.

    The settings are empty if no device process has left them beside the timeline.

    Raises:
        NotFoundError: there is no timeline.
    """
    if place.is_dir():
        about = _about(place)
        named = about.get("timeline")
        path = Path(named) if isinstance(named, str) and named else place / "timeline.jsonl"
        if not path.exists():
            raise NotFoundError(
                f"no timeline in '{place}'; the device writes one when it is started with "
                "--timeline FILE"
            )
        return path, about
    about = _about(place.parent)
    return place, about if Path(str(about.get("timeline"))) == place.absolute() else {}


def _about(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / "softgpu.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
