"""New lines in the log of the MPS control daemon, which may span several files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

USUAL_LOGS = Path("/var/log/nvidia-mps")  # unless CUDA_MPS_LOG_DIRECTORY says otherwise


class LogFiles:
    """Reads files from their present ends on. One thread at a time."""

    def __init__(self, files: Iterable[Path]) -> None:
        """Skip what is in the files by now; files that appear later are read as well."""
        self._read_bytes = {path: _size(path) for path in files}
        self._rests = dict.fromkeys(self._read_bytes, b"")  # incomplete last lines

    @property
    def can_be_read(self) -> bool:
        """Tell whether at least one can be read; another user's may not be readable."""
        return any(os.access(path, os.R_OK) for path in self._read_bytes)

    def lines(self) -> Iterator[str]:
        """Return the whole lines that came since the last call."""
        for path in self._read_bytes:
            yield from self._news(path).decode(errors="replace").splitlines()

    def _news(self, path: Path) -> bytes:
        if _size(path) < self._read_bytes[path]:  # truncated and begun anew
            self._read_bytes[path] = 0
        try:
            with path.open("rb") as file:
                file.seek(self._read_bytes[path])
                text = file.read()
        except OSError:  # not there yet, or not readable
            return b""
        self._read_bytes[path] += len(text)
        lines, newline, self._rests[path] = (self._rests[path] + text).rpartition(b"\n")
        return lines + newline


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
