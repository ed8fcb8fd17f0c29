"""The servers of MPS, and which of them have crashed: by the log, by answers, and by processes.

The log has the start of a server, its end, and each client that comes: with whether it was given to
the server, or waits. That a client goes is no line of it, but can be seen of its process.

How a server ended is not to be had from its status, which is 0 of one that a signal has killed as
well (seen of the drivers 535 to 555, tests/data/mps). But one that ends well has no clients any
more: it was told to end, or the first client of another user waits, and did so before. So it has
crashed if it had clients when it was last looked at; and where it may have ended well since, if one
of these still lives. Who waits is a line before the end, whenever that is read.
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
    r"|Cmd:shutdown_server (?P<told>\d+)\s*$"  # with -f its clients end by it
    r"|Server (?P<ended>\d+) exited with status (?P<status>-?\d+)"
    # As of "Failed to start : no device" or "Failed to start server using uid 0, error: denied".
    r"|(?P<failed>\d+)\] Failed to start\b.*?[:.] (?P<why>.+)"
)

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Known:
    user: int | None  # None: it had ended before that was seen
    clients: set[int] = field(default_factory=set)  # pids of those that live, at the last look
    is_ready: bool = False
    is_told: bool = False  # to end once they have gone
    has_ended: bool = False  # by the log
    was_awaited: bool = False  # another user's client waited for that


class Servers:
    """Those that run, and those that did when `crashed` was last asked. One thread at a time."""

    def __init__(self, files: Iterable[Path]) -> None:
        """`files`: the log; what is in it by now is over."""
        self._log = LogFiles(files)
        self._known: dict[int, _Known] = {}
        self._waiting: dict[int, int] = {}  # clients without a server -> their users
        self._listed: frozenset[int] = frozenset()  # in the last answer
        self.why_not = ""  # the last one never came up; whoever has read it makes it empty

    @property
    def are_logged(self) -> bool:
        """As far as the log can be read at all."""
        return self._log.can_be_read

    @property
    def are_contended(self) -> bool:
        """Another user's client waits for one to end, which it does as soon as it can."""
        return any(map(self._is_awaited, self._known.values()))

    def clients(self, server: int) -> frozenset[int]:
        """Pids of those that it is known to have."""
        known = self._known.get(server)
        return frozenset(known.clients) if known else frozenset()

    def look(self) -> bool:
        """See what can be seen without asking; whether anything has happened."""
        has_news = self._read()
        for pid, server in self._known.items():
            if server.has_ended or not is_running(pid):
                has_news = True
            else:
                server.clients = {client for client in server.clients if lives(client)}
        return has_news

    def take(self, servers: Sequence[Server], clients: Mapping[int, list[int] | None]) -> bool:
        """What was answered: all that run, and their clients' pids; whether any of it is new.

        None: of that one it was not answered.
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
        """Those that have ended since the last call, with clients that nothing else has ended."""
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
        """What has waited for it is given to it."""
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
        """These are all that it has."""
        known = self._known[server]
        if clients and not known.clients:
            log.info("mps has clients", server=server)
        known.clients = clients

    def _end(self, server: int) -> bool:
        """Whether it had ever been up, as far as is known."""
        if (known := self._known.get(server)) is None:
            return False
        known.has_ended, known.was_awaited = True, self._is_awaited(known)
        return known.is_ready or bool(known.clients)
