"""What the control daemon of MPS writes of its servers: of those, too, that nobody saw running.

A server may crash so soon after its first client that no look at the list of servers finds it. Its
start is a line of the log all the same: `Starting new server 11803 for user 1000`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from pathlib import Path

from tandem._mps import is_running

USUAL_LOGS = Path("/var/log/nvidia-mps")  # where they are unless CUDA_MPS_LOG_DIRECTORY says it
_STARTED = re.compile(rb"Starting new server (\d+) for user")
_ENDED_WELL = re.compile(rb"Server (\d+) exited with status 0\b")


class ServerLog:
    """Servers that were started, and are not known to have had clients. One thread at a time."""

    def __init__(self, files: Iterable[Path]) -> None:
        """What is in the files by now is over."""
        self._read_bytes = {path: _size(path) for path in files}
        self._rests = dict.fromkeys(self._read_bytes, b"")  # of a line that has not ended
        self._unseen: set[int] = set()
        self.ended_well: set[int] = set()  # of those that were served when it was last asked

    def crashed(self, served: Collection[int]) -> list[int]:
        """Servers that ended since the last call without ever having been seen with a client.

        `served`: those that have clients now, or had some at the last call.
        """
        for path in self._read_bytes:
            lines = self._news(path)
            self._unseen |= {int(pid) for pid in _STARTED.findall(lines)}
            self.ended_well |= {int(pid) for pid in _ENDED_WELL.findall(lines)}
        self._unseen -= self.ended_well
        self.ended_well &= set(served)
        self._unseen -= set(served)
        ended = sorted(pid for pid in self._unseen if not is_running(pid))
        self._unseen -= set(ended)
        return ended

    def _news(self, path: Path) -> bytes:
        """Whole lines."""
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
