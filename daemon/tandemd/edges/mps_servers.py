"""Tracks the servers of MPS and detects crashes: by log, answers and processes.

The log has each server's start and end, and each client that comes, with whether the server takes
it or it waits. It has no line for a client that leaves, but that can be seen from the client's
process.

The exit status does not tell how a server ended: it is 0 even after a signal has killed it (seen
with drivers 535 to 555, tests/data/mps). But a server that ends normally has no clients left:
either it was told to end, or another user's first client waits and did so before the end. So a
server has crashed if it had clients at the last look; and if it may have ended normally since then,
only if one of these clients still lives. A waiting client's line precedes the end's line in the
log, however late both are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from tandem._mps import Server, is_running, lives
from tandemd.edges.mps_log import LogFiles

_LINE = re.compile(
    r"Starting new server (?P<started>\d+) for user (?P<of>-?\d+)"
    r"|NEW SERVER (?P<ready>\d+): Ready"
    r"|NEW CLIENT (?P<client>\d+) from user (?P<user>-?\d+): Server (?P<how>already|is not ready)"
    r"|Cmd:shutdown_server (?P<told>\d+)\s*$"  # with -f its clients are ended
    r"|Server (?P<ended>\d+) exited with status (?P<status>-?\d+)"
    # As in "Failed to start : no device" or "Failed to start server using uid 0, error: denied".
    r"|(?P<failed>\d+)\] Failed to start\b.*?[:.] (?P<why>.+)"
)

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Known:
    user: int | None  # None: it had ended before its user was seen
    clients: set[int] = field(default_factory=set)  # pids of clients alive at the last look
    is_ready: bool = False
    is_told: bool = False  # told to end once they have gone
    has_ended: bool = False  # according to the log
    was_awaited: bool = False  # another user's client was waiting for the end


class Servers:
    """The running servers, and those since the last `crashed`. One thread at a time."""

    def __init__(self, files: Iterable[Path]) -> None:
        """`files` is the log; what it holds by now is ignored."""
        self._log = LogFiles(files)
        self._known: dict[int, _Known] = {}
        self._waiting: dict[int, int] = {}  # clients without a server -> their users
        self._listed: frozenset[int] = frozenset()  # in the last answer
        self.why_not = ""  # why the last one never came up; the reader clears it

    @property
    def are_logged(self) -> bool:
        """Tell whether the log can be read at all."""
        return self._log.can_be_read

    @property
    def are_contended(self) -> bool:
        """Tell whether another user's client waits for one to end, as it will as soon as it can."""
        return any(map(self._is_awaited, self._known.values()))

    def clients(self, server: int) -> frozenset[int]:
        """Return the pids of the server's known clients."""
        known = self._known.get(server)
        return frozenset(known.clients) if known else frozenset()

    def look(self) -> bool:
        """Look without querying MPS; returns whether anything has happened."""
        has_news = self._read()
        for pid, server in self._known.items():
            if server.has_ended or not is_running(pid):
                has_news = True
            else:
                server.clients = {client for client in server.clients if lives(client)}
        return has_news

    def take(self, servers: Sequence[Server], clients: Mapping[int, list[int] | None]) -> bool:
        """Take in an answer: all servers, and their clients' pids; returns whether it is news.

        None instead of clients: that query was not answered.
        """
        self._listed = frozenset(server.pid for server in servers)
        has_news = False
        for server in servers:
            has_news |= server.pid not in self._known
            known = self._known.setdefault(server.pid, _Known(server.owner))
            named = clients[server.pid]
            if named is None:
                continue
            has_news |= known.clients != set(named)
            self._give(server.pid, set(named))
        return has_news

    def crashed(self) -> list[int]:
        """Return the servers that have crashed since the last call."""
        gone = [
            pid
            for pid, server in self._known.items()
            if server.has_ended or not (pid in self._listed or is_running(pid))
        ]
        ended = {pid: self._known.pop(pid) for pid in gone}
        return [pid for pid, server in ended.items() if self._has_crashed(server)]

    def _has_crashed(self, server: _Known) -> bool:
        if server.is_told or not server.clients:
            return False
        is_followed = any(one.user != server.user for one in self._known.values())
        may_be_well = server.was_awaited if server.has_ended else is_followed
        return not may_be_well or any(map(lives, server.clients))

    def _is_awaited(self, server: _Known) -> bool:
        return any(user != server.user for user in self._waiting.values())

    def _read(self) -> bool:
        has_news, reasons, failed = False, dict[int, str](), dict[int, str]()
        for line in self._log.lines():
            if (found := _LINE.search(line)) is None:
                continue
            has_news, said = True, found.groupdict()
            if said["failed"]:
                reasons[int(said["failed"])] = said["why"].removeprefix("error: ").strip()
            elif said["ended"]:
                if not self._end(int(said["ended"])) and said["status"] != "0":
                    failed[int(said["ended"])] = said["status"]
            else:
                failed = {} if said["ready"] else failed
                self._take_line(said)
        if failed:
            server, status = failed.popitem()
            self.why_not = reasons.get(server, f"it ended with status {status}")
        return has_news

    def _take_line(self, said: dict[str, str]) -> None:
        if said["started"]:
            self._known[int(said["started"])] = _Known(int(said["of"]))
        elif said["ready"]:
            self._begin(int(said["ready"]))
        elif said["told"] and (server := self._known.get(int(said["told"]))):
            server.is_told = True
        elif said["client"]:
            self._come(int(said["client"]), int(said["user"]), waits=said["how"] != "already")

    def _begin(self, server: int) -> None:
        """Assign the clients that waited for the server."""
        known = self._known.setdefault(server, _Known(None))
        known.is_ready = True
        served = {pid for pid, user in self._waiting.items() if known.user in (user, None)}
        self._give(server, known.clients | served)
        for pid in served:
            del self._waiting[pid]

    def _come(self, client: int, user: int, *, waits: bool) -> None:
        if waits:
            self._waiting[client] = user
            return
        for pid, server in self._known.items():
            if server.user == user and not server.has_ended:
                self._give(pid, server.clients | {client})

    def _give(self, server: int, clients: set[int]) -> None:
        """Replace the server's set of clients."""
        known = self._known[server]
        if clients and not known.clients:
            log.info("mps has clients", server=server)
        known.clients = clients

    def _end(self, server: int) -> bool:
        """Note a server's end; returns whether it had ever been up, as far as is known."""
        if (known := self._known.get(server)) is None:
            return False
        known.has_ended, known.was_awaited = True, self._is_awaited(known)
        return known.is_ready or bool(known.clients)
