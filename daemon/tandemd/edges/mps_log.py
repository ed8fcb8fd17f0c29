"""What is new in the log of the control daemon of MPS, which may be in several files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

USUAL_LOGS = Path("/var/log/nvidia-mps")  # where they are unless CUDA_MPS_LOG_DIRECTORY says it


class LogFiles:
    """Read from where they end now. One thread at a time."""

    def __init__(self, files: Iterable[Path]) -> None:
        """What is in the files by now is over; those that come later are read as well."""
        self._read_bytes = {path: _size(path) for path in files}
        self._rests = dict.fromkeys(self._read_bytes, b"")  # of a line that has not ended

    @property
    def can_be_read(self) -> bool:
        """One of them, at least; another user's may not be for us."""
        return any(os.access(path, os.R_OK) for path in self._read_bytes)

    def lines(self) -> Iterator[str]:
        """Whole ones, that came since the last call."""
        for path in self._read_bytes:
            yield from self._news(path).decode(errors="replace").splitlines()

    def _news(self, path: Path) -> bytes:
        if _size(path) < self._read_bytes[path]:  # begun anew
            self._read_bytes[path] = 0
        try:
            with path.open("rb") as file:
                file.seek(self._read_bytes[path])
                text = file.read()
        except OSError:  # not there yet, or not for us
            return b""
        self._read_bytes[path] += len(text)
        lines, newline, self._rests[path] = (self._rests[path] + text).rpartition(b"\n")
        return lines + newline


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
