"""The MPS control daemon, spoken to through its command-line program, as people do.

It has two interfaces, and speaks the one that it was started with (NVIDIA's "Multi-Process
Service", "Legacy MPS v2 Interface" and "MPS v3 Interface"). In the old one commands come on stdin,
and a server is started for whichever client connects; in the new one commands are arguments, and
servers have names, owners and pipes of their own. Both the daemon and `tandem doctor` use this
module.

With the old interface the control daemon serves one session at a time. A second session meanwhile
is refused, or ends with code 0 and no answer, which would read as "no servers" (seen with the
drivers 535 to 555, tests/data/mps). So each question is followed by one that always has an answer,
and both are repeated until that answer comes. Once told to quit, the control daemon answers nobody
until it has ended.

Anybody may create a pipe where programs look for it, in /tmp. Only pipes of root and of our own
user are used: another user's may give any answer, or none.
"""

import fcntl
import os
import re
import shutil
import stat
import struct
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PROGRAM = "nvidia-cuda-mps-control"
PIPES = "CUDA_MPS_PIPE_DIRECTORY"
USUAL_PIPES = Path("/tmp/nvidia-mps")  # the default when the variable is not set
MOST_DIGITS = 10  # of a pid or uid
_COMM_LENGTH = 15  # of a process name in the kernel; in these, control and servers are equal
_CSV = "--format=csv,noheader"
_LAST = "get_default_active_thread_percentage"  # always answered, by a number with a decimal point
_PERCENTAGE = re.compile(r"\d+\.\d+")
_NOBODY = "Cannot find MPS control daemon"  # at a stale pipe, or rarely at one whose daemon runs
_AGAIN_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One MPS server process, to which clients connect."""

    pid: int
    pipes: Path  # where its clients look for it
    name: str = ""  # only in the new interface
    uid: int | None = None  # only in the new interface; None: not known
    is_ready: bool = True

    @property
    def owner(self) -> int | None:
        """The uid whose clients it serves; None: it has ended."""
        if self.uid is not None:
            return self.uid
        try:
            return os.stat(f"/proc/{self.pid}").st_uid
        except OSError:
            return None


class Control:
    """The control daemon whose pipe is in `place`, if there is one. One thread at a time."""

    def __init__(self, place: Path, *, environment: Mapping[str, str], timeout_s: float) -> None:
        """`timeout_s` limits each method; after it, the control daemon counts as not answering."""
        self._place = place
        self._environment = {**environment, PIPES: str(place)}
        self._timeout_s = timeout_s
        self.version = 2  # of the interface, according to the last answer

    def servers(self) -> list[Server] | None:
        """The running servers; None: no control daemon that we trust answers."""
        if not has_pipe(self._place):
            return None
        end_s = time.monotonic() + self._timeout_s
        try:
            told = self._session("get_server_list", self._timeout_s / 2)
        except _BusyError:
            told = None
            # Programs without the new interface take its arguments for a session, and print
            # nothing.
            if takes_files(self._environment, timeout_s=(end_s - time.monotonic()) / 2):
                rows = self._run("server", "list", _CSV)
                named = None if rows is None else [_server(row) for row in rows.splitlines() if row]
                if named is not None and None not in named:
                    self.version = 3
                    return [server for server in named if server and server.pid]
            told = self._tell("get_server_list", end_s)
        pids = None if told is None else _pids(told.split())
        if pids is None:
            return None
        self.version = 2
        return [Server(pid=pid, pipes=self._place) for pid in pids]

    def pipes_for(self, uid: int, servers: Sequence[Server]) -> Path | None:
        """The pipe directory for clients of a uid, given these servers; None: there is none."""
        if self.version == 2:
            return self._place
        return next((one.pipes for one in servers if one.uid == uid and one.is_ready), None)

    def clients(self, server: Server) -> list[int] | None:
        """The pids of a server's clients; None: no answer."""
        if self.version == 2:
            told = self._tell(f"get_client_list {server.pid}")
            words = None if told is None else told.split()
        else:
            rows = self._run("client", "list", f"--server={server.name}", _CSV)
            words = None if rows is None else [r.split(",")[0] for r in rows.splitlines() if r]
        return None if words is None else _pids(words)  # or it says that the server is gone

    def status(self, server: Server) -> str:
        """A server's status in the old interface, in the control daemon's word; empty: no answer.

        INITIALIZING, ACTIVE or FAULT; the driver 535 does not know the question, and says so.
        """
        return (self._tell(f"get_server_status {server.pid}") or "").strip()

    def create(self, name: str, *, uid: int, gpus: str) -> None:
        """Create a server in the new interface; `gpus`: UUIDs separated by commas; empty: all."""
        devices = [f"--allowed-devices={gpus}"] if gpus else []
        self._run("server", "create", name, f"--uid={uid}", *devices)

    def shut_down(self, pid: int) -> None:
        """Have a server of the old interface end after its last client; it takes no new ones."""
        self._tell(f"shutdown_server {pid}")

    def quit(self) -> None:
        """Tell the control daemon to quit, and wait for that; a busy one may not hear of it."""
        if self.version == 2:
            # The exit code tells nothing: it is 1 whether or not a server had failed.
            _run((PROGRAM,), "quit\n", self._environment, self._timeout_s)
        else:
            self._run("-q")

    def _tell(self, command: str, end_s: float | None = None) -> str | None:
        """The answer to a command of the old interface; None: there is none by `end_s`."""
        end_s = time.monotonic() + self._timeout_s if end_s is None else end_s
        while (left_s := end_s - time.monotonic()) > 0:
            try:
                return self._session(command, left_s)
            except _BusyError:
                time.sleep(min(_AGAIN_S, left_s))
        return None

    def _session(self, command: str, timeout_s: float) -> str | None:
        """The answer of one session; None: there is no control daemon.

        Raises:
            _BusyError: no answer now, but there may be one later.
        """
        told = f"{command}\n{_LAST}\n"
        done = _done((PROGRAM,), told, self._environment, timeout_s)
        is_found = done is None or _NOBODY not in done.stderr
        if not is_found and control_pid(self._place) is None:
            return None
        answer, _, last = ("" if done is None else done.stdout.rstrip()).rpartition("\n")
        if not _PERCENTAGE.fullmatch(last):
            raise _BusyError
        return answer

    def _run(self, *words: str) -> str | None:
        return _run((PROGRAM, *words), "", self._environment, self._timeout_s)


class _BusyError(Exception):
    """The control daemon seems to be serving another session."""


def _pids(words: Sequence[str]) -> list[int] | None:
    """The words as pids; None: one of them is not a pid."""
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
    done = _done(words, told, environment, timeout_s)
    return done.stdout if done is not None and done.returncode == 0 else None


def _done(
    words: Sequence[str], told: str, environment: Mapping[str, str], timeout_s: float
) -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run(
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


def pipes_of(environment: Mapping[str, str]) -> Path:
    """Where a program with this environment looks for the pipe."""
    return Path(environment.get(PIPES) or USUAL_PIPES)


def can_start(environment: Mapping[str, str]) -> bool:
    """Whether its program is on the PATH; it comes with NVIDIA's driver."""
    return shutil.which(PROGRAM, path=environment.get("PATH")) is not None


def takes_files(environment: Mapping[str, str], *, timeout_s: float) -> bool:
    """Whether the program's usage shows the new interface, which takes configuration files."""
    usage = _run((PROGRAM, "-p", "3", "-h"), "", environment, timeout_s) or ""
    return "namespace" in usage and "--apply" in usage


def is_running(pid: int) -> bool:
    """Whether `pid` is a live process of MPS, the control daemon or a server."""
    return _name_of(pid) == PROGRAM[:_COMM_LENGTH]


def lives(pid: int) -> bool:
    """Whether a process of that pid is alive."""
    return _name_of(pid) is not None


def _name_of(pid: int) -> str | None:
    """The process name that the kernel keeps; None: the process has ended."""
    try:
        facts = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    name, state = facts.partition("(")[2].rpartition(")")[0], facts.rpartition(")")[2].split()[0]
    return None if state == "Z" else name


def control_pid(place: Path) -> int | None:
    """The pid of the control daemon that runs at `place`; None: none is known.

    Found by its lock. There is also a file with its pid, but only from driver 550 on.
    """
    # struct flock: type, whence, start, length, pid
    lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        with (place / "control_lock").open("rb") as file:
            kind, *_, pid = struct.unpack("hhqqi4x", fcntl.fcntl(file, fcntl.F_GETLK, lock))
    except (OSError, ValueError):  # ValueError: a NUL in the path
        return None
    return pid if kind != fcntl.F_UNLCK and is_running(pid) else None


def has_pipe(place: Path) -> bool:
    """Whether a control daemon of root or our own user has, or had, its pipe there."""
    try:
        pipe = os.lstat(place / "control")
        found = (pipe, os.lstat(place), os.stat(place))
    except (OSError, ValueError):  # ValueError: a NUL in the path
        return False
    is_pipe = stat.S_ISSOCK(pipe.st_mode) or stat.S_ISFIFO(pipe.st_mode)
    return is_pipe and all(one.st_uid in (0, os.geteuid()) for one in found)


def owner_of(place: Path) -> int | None:
    """The uid of the control daemon whose pipe is there; None: there is none."""
    try:
        return os.lstat(place / "control").st_uid
    except (OSError, ValueError):
        return None


def serves(owner: int | None, uid: int) -> bool:
    """Whether a control daemon of `owner` takes clients of `uid`: that of root takes all."""
    return owner in (None, 0, uid)
