"""What the control daemon of MPS writes of its servers: of those, too, that nobody saw running.

A server may crash so soon after its first client that no look at the list of servers finds it. Its
start is a line of the log all the same: `Starting new server 11803 for user 1000`.

How it ended is harder to tell: `Server 11803 exited with status 0` is written of one that a signal
has killed as well (seen of the drivers 535 to 555, tests/data/mps). So it has ended well only where
there was a reason: somebody told it to, or another user's server came next, as it does once the
clients of the one before have gone. A crash while another user waits looks the same.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from pathlib import Path

from tandem._mps import is_running

USUAL_LOGS = Path("/var/log/nvidia-mps")  # where they are unless CUDA_MPS_LOG_DIRECTORY says it
_LINE = re.compile(
    r"Starting new server (?P<started>\d+) for user (?P<user>-?\d+)"
    r"|NEW SERVER (?P<ready>\d+): Ready"
    r"|Cmd:shutdown_server (?P<told>\d+)\s*$"  # with -f its clients end by it
    r"|Server (?P<ended>\d+) exited with status (?P<status>-?\d+)"
    # As of "Failed to start : no device" or "Failed to start server using uid 0, error: denied".
    r"|(?P<failed>\d+)\] Failed to start\b.*?[:.] (?P<why>.+)"
)


class ServerLog:
    """Servers that were started, and are not known to have had clients. One thread at a time."""

    def __init__(self, files: Iterable[Path]) -> None:
        """What is in the files by now is over."""
        self._read_bytes = {path: _size(path) for path in files}
        self._rests = dict.fromkeys(self._read_bytes, b"")  # of a line that has not ended
        self._unseen: set[int] = set()
        self._users: dict[int, str] = {}  # server -> whose it is
        self._ready: set[int] = set()
        self._told: set[int] = set()  # to end
        self._last: tuple[int, str | None] | None = None  # ended with status 0, whose it was
        self._reasons: dict[int, str] = {}  # of servers that failed
        self._failed: dict[int, str] = {}  # server -> status
        self.ended_well: set[int] = set()  # of those that were served when it was last asked
        self.why_not = ""  # of the last server, when it was last asked: it never came up

    def crashed(self, served: Collection[int]) -> list[int]:
        """Servers that ended since the last call without ever having been seen with a client.

        `served`: those that have clients now, or had some at the last call.
        """
        self._failed, self._reasons = {}, {}
        for path in self._read_bytes:
            for line in self._news(path).decode(errors="replace").splitlines():
                if found := _LINE.search(line):
                    self._take(found)
        self.why_not = ""
        if self._failed:
            server, status = self._failed.popitem()
            self.why_not = self._reasons.get(server, f"it ended with status {status}")
        self._unseen -= self.ended_well
        self.ended_well &= set(served)
        self._unseen -= set(served)
        ended = sorted(pid for pid in self._unseen if not is_running(pid))
        self._unseen -= set(ended)
        return ended

    def _take(self, found: re.Match[str]) -> None:
        said = found.groupdict()
        if said["started"]:
            self._begin(int(said["started"]), said["user"])
        elif said["ready"]:
            self._ready.add(int(said["ready"]))
            self._failed = {}
        elif said["told"]:
            self._told.add(int(said["told"]))
        elif said["ended"]:
            self._end(int(said["ended"]), said["status"])
        else:
            self._reasons[int(said["failed"])] = said["why"].removeprefix("error: ").strip()

    def _begin(self, server: int, user: str) -> None:
        if self._last is not None and self._last[1] != user:
            self.ended_well.add(self._last[0])
        self._last = None
        self._users[server] = user
        self._unseen.add(server)

    def _end(self, server: int, status: str) -> None:
        user, was_ready = self._users.pop(server, None), server in self._ready
        if status == "0" and server in self._told:
            self.ended_well.add(server)
        elif status == "0":
            self._last = server, user
        elif not was_ready:
            self._failed[server] = status
            self._unseen.discard(server)
        self._ready.discard(server)
        self._told.discard(server)

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
