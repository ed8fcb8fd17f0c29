"""The control daemon of MPS, as people speak to it: by its program.

It has two interfaces, and speaks the one that it was started with (NVIDIA's "Multi-Process
Service", "Legacy MPS v2 Interface" and "MPS v3 Interface"). In the old one commands come on stdin,
and a server is started for whoever comes; in the new one they are arguments, and servers have
names, owners and pipes of their own. Both the daemon and `tandem doctor` ask here.

In the old one the daemon answers one session at a time. Whoever asks meanwhile is refused, or ends
with code 0 and without an answer, which would read as "no servers" (seen of the drivers 535 to 555,
tests/data/mps). So each question is followed by one that always has an answer, and is asked again
until that has come. Once it was told to quit it answers nobody, until it has ended.

Anybody may have made a pipe where programs look for it, in /tmp. Only those of root and of our own
user are spoken to: another's may answer anything, or not at all.
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
USUAL_PIPES = Path("/tmp/nvidia-mps")  # where they are unless the variable says otherwise
MOST_DIGITS = 10  # of a pid or uid
_COMM_LENGTH = 15  # what the kernel keeps of a name; it is the same of its servers
_CSV = "--format=csv,noheader"
_LAST = "get_default_active_thread_percentage"  # the answer is a number with a point in it
_PERCENTAGE = re.compile(r"\d+\.\d+")
_NOBODY = "Cannot find MPS control daemon"  # at a pipe that was left; or, rarely, of one that runs
_AGAIN_S = 0.02


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
        try:
            told = self._session("get_server_list", self._timeout_s / 2)
        except _BusyError:
            told = None
            # Programs without the new interface take its words for a session, and say nothing.
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

    def status(self, server: Server) -> str:
        """Of one of the old interface, in the daemon's word; empty: it was not answered.

        INITIALIZING, ACTIVE or FAULT; the driver 535 does not know the question, and says so.
        """
        return (self._tell(f"get_server_status {server.pid}") or "").strip()

    def create(self, name: str, *, uid: int, gpus: str) -> None:
        """Have a server of the new interface; `gpus`: UUIDs, by commas; empty: all."""
        devices = [f"--allowed-devices={gpus}"] if gpus else []
        self._run("server", "create", name, f"--uid={uid}", *devices)

    def shut_down(self, pid: int) -> None:
        """End a server of the old interface once it has no clients; it takes no more."""
        self._tell(f"shutdown_server {pid}")

    def quit(self) -> None:
        """Have it end, which is waited for; it may be busy, and not hear of it."""
        if self.version == 2:
            # Its code is 1 where a server had failed, or not: nothing is to be learnt from it.
            _run((PROGRAM,), "quit\n", self._environment, self._timeout_s)
        else:
            self._run("-q")

    def _tell(self, command: str, end_s: float | None = None) -> str | None:
        """What it answers in the old interface; None: nothing, until `end_s`."""
        end_s = time.monotonic() + self._timeout_s if end_s is None else end_s
        while (left_s := end_s - time.monotonic()) > 0:
            try:
                return self._session(command, left_s)
            except _BusyError:
                time.sleep(min(_AGAIN_S, left_s))
        return None

    def _session(self, command: str, timeout_s: float) -> str | None:
        """The answer; None: there is nobody.

        Raises:
            _BusyError: there was no answer, which may come another time.
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
    """Somebody else is being answered, as far as can be seen."""


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
    return _name_of(pid) == PROGRAM[:_COMM_LENGTH]


def lives(pid: int) -> bool:
    """Whether there is a process of that pid that has not ended."""
    return _name_of(pid) is not None


def _name_of(pid: int) -> str | None:
    """As the kernel keeps it; None: it has ended."""
    try:
        facts = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    name, state = facts.partition("(")[2].rpartition(")")[0], facts.rpartition(")")[2].split()[0]
    return None if state == "Z" else name


def control_pid(place: Path) -> int | None:
    """Of the control daemon that runs there; None: none is known.

    By its lock; a file with its pid is there, too, but from the driver 550 on alone.
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
