"""The control daemon of MPS, as people speak to it: by its program.

It has two interfaces, and speaks the one that it was started with (NVIDIA's "Multi-Process
Service", "Legacy MPS v2 Interface" and "MPS v3 Interface"). In the old one commands come on stdin,
and a server is started for whoever comes; in the new one they are arguments, and servers have
names, owners and pipes of their own. Both the daemon and `tandem doctor` ask here.

Anybody may have made a pipe where programs look for it, in /tmp. Only those of root and of our own
user are spoken to: another's may answer anything, or not at all.
"""

import os
import shutil
import stat
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PROGRAM = "nvidia-cuda-mps-control"
PIPES = "CUDA_MPS_PIPE_DIRECTORY"
USUAL_PIPES = Path("/tmp/nvidia-mps")  # where they are unless the variable says otherwise
MOST_DIGITS = 10  # of a pid or uid
_COMM_LENGTH = 15  # what the kernel keeps of a name; it is the same of its servers
_CSV = "--format=csv,noheader"


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One process that clients are connected to."""

    pid: int
    pipes: Path  # where its clients look for it
    name: str = ""  # in the new interface
    uid: int | None = None  # the same; None: not known
    is_ready: bool = True

    @property
    def owner(self) -> int | None:
        """Whose clients it has; None: it has ended."""
        if self.uid is not None:
            return self.uid
        try:
            return os.stat(f"/proc/{self.pid}").st_uid
        except OSError:
            return None


class Control:
    """The control daemon with its pipe in `place`, if there is one. One thread at a time."""

    def __init__(self, place: Path, *, environment: Mapping[str, str], timeout_s: float) -> None:
        """`timeout_s`: of each method; longer, and nobody answers."""
        self._place = place
        self._environment = {**environment, PIPES: str(place)}
        self._timeout_s = timeout_s
        self.version = 2  # of the interface, as it was answered last

    def servers(self) -> list[Server] | None:
        """Those that run; None: nobody answers whom we believe."""
        if not has_pipe(self._place):
            return None
        end_s = time.monotonic() + self._timeout_s
        told = _run((PROGRAM,), "get_server_list\n", self._environment, self._timeout_s / 2)
        pids = None if told is None else _pids(told.split())
        if pids is not None:
            self.version = 2
            return [Server(pid=pid, pipes=self._place) for pid in pids]
        left_s = end_s - time.monotonic()
        rows = _run((PROGRAM, "server", "list", _CSV), "", self._environment, left_s)
        found = None if rows is None else [_server(row) for row in rows.splitlines() if row]
        if found is None or None in found:
            return None
        self.version = 3
        return [server for server in found if server and server.pid]

    def pipes_for(self, uid: int, servers: Sequence[Server]) -> Path | None:
        """Where clients of a uid look for it, of these that it has; None: nowhere."""
        if self.version == 2:
            return self._place
        return next((one.pipes for one in servers if one.uid == uid and one.is_ready), None)

    def clients(self, server: Server) -> list[int] | None:
        """Pids of those of a server; None: it was not answered."""
        if self.version == 2:
            told = self._tell(f"get_client_list {server.pid}")
            words = None if told is None else told.split()
        else:
            rows = self._run("client", "list", f"--server={server.name}", _CSV)
            words = None if rows is None else [r.split(",")[0] for r in rows.splitlines() if r]
        return None if words is None else _pids(words)  # or it says that the server has gone

    def is_ending(self, servers: Sequence[Server]) -> bool:
        """One of them takes no new clients any more: what comes now is refused, or waits.

        The word is that of the software GPU. NVIDIA's documentation names only INITIALIZING, ACTIVE
        and FAULT: where it says another one this is False, and it is used until it has ended.
        """
        if self.version != 2:
            return False  # there a server is ready, or is no place for clients
        return any(self.status(server) == "SHUTTING_DOWN" for server in servers)

    def status(self, server: Server) -> str:
        """Of one of the old interface, in the daemon's word; empty: it was not answered."""
        return (self._tell(f"get_server_status {server.pid}") or "").strip()

    def create(self, name: str, *, uid: int, gpus: str) -> None:
        """Have a server of the new interface; `gpus`: UUIDs, by commas; empty: all."""
        devices = [f"--allowed-devices={gpus}"] if gpus else []
        self._run("server", "create", name, f"--uid={uid}", *devices)

    def shut_down(self, pid: int) -> None:
        """End a server of the old interface once it has no clients; it takes no more."""
        self._tell(f"shutdown_server {pid}")

    def quit(self) -> None:
        """End it."""
        if self.version == 2:
            self._tell("quit")
        else:
            self._run("-q")

    def _tell(self, command: str) -> str | None:
        return _run((PROGRAM,), f"{command}\n", self._environment, self._timeout_s)

    def _run(self, *words: str) -> str | None:
        return _run((PROGRAM, *words), "", self._environment, self._timeout_s)


def _pids(words: Sequence[str]) -> list[int] | None:
    """None: one of the words is no pid."""
    if all(word.isascii() and word.isdigit() and len(word) <= MOST_DIGITS for word in words):
        return [int(word) for word in words]
    return None


def _server(row: str) -> Server | None:
    # name, uid, pid, status, pipe directory, and more
    cells = row.split(",")
    if len(cells) < 5 or (uid := _pids(cells[1:2])) is None:
        return None
    name, _, pid, status, pipes = cells[:5]
    return Server(
        name=name,
        uid=uid[0],
        pid=(_pids([pid]) or [0])[0],
        is_ready=status == "Ready",
        pipes=Path(pipes),
    )


def _run(
    words: Sequence[str], told: str, environment: Mapping[str, str], timeout_s: float
) -> str | None:
    try:
        done = subprocess.run(
            words,
            env=environment,
            input=told,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):  # ValueError: a NUL in a path, say
        return None
    return done.stdout if done.returncode == 0 else None


def pipes_of(environment: Mapping[str, str]) -> Path:
    """Where a program of this environment looks for it."""
    return Path(environment.get(PIPES) or USUAL_PIPES)


def can_start(environment: Mapping[str, str]) -> bool:
    """Whether its program is on the PATH; it comes with NVIDIA's driver."""
    return shutil.which(PROGRAM, path=environment.get("PATH")) is not None


def takes_files(environment: Mapping[str, str], *, timeout_s: float) -> bool:
    """Whether it has the new interface, and so starts from a configuration file: it says so."""
    usage = _run((PROGRAM, "-p", "3", "-h"), "", environment, timeout_s) or ""
    return "namespace" in usage and "--apply" in usage


def is_running(pid: int) -> bool:
    """Whether that is a process of MPS, the control daemon or a server, that has not ended."""
    try:
        facts = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return False
    name, state = facts.partition("(")[2].rpartition(")")[0], facts.rpartition(")")[2].split()[0]
    return name == PROGRAM[:_COMM_LENGTH] and state != "Z"


def control_pid(place: Path) -> int | None:
    """Of the control daemon that runs there, by the file that it writes; None: none is known."""
    try:
        pids = _pids((place / f"{PROGRAM}.pid").read_text(errors="replace").split())
    except OSError:
        return None
    return pids[0] if pids and is_running(pids[0]) else None


def has_pipe(place: Path) -> bool:
    """Whether a control daemon of root's or our own user's has its pipe there, or had."""
    try:
        pipe = os.lstat(place / "control")
        found = (pipe, os.lstat(place), os.stat(place))
    except (OSError, ValueError):  # ValueError: a NUL in the path
        return False
    is_pipe = stat.S_ISSOCK(pipe.st_mode) or stat.S_ISFIFO(pipe.st_mode)
    return is_pipe and all(one.st_uid in (0, os.geteuid()) for one in found)


def owner_of(place: Path) -> int | None:
    """The uid whose control daemon has its pipe there; None: there is none."""
    try:
        return os.lstat(place / "control").st_uid
    except (OSError, ValueError):
        return None


def serves(owner: int | None, uid: int) -> bool:
    """Whether a control daemon of `owner` takes clients of `uid`: that of root takes all."""
    return owner in (None, 0, uid)
