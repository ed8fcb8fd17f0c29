"""The MPS control daemon that this daemon, or one before it, has started, and its directory.

A file beside its pipe holds its pid, which marks it as ours. The file is trusted, and files here
are written and removed, only in a directory that belongs to root or our own user and not through
links: the environment may name the directory, and others may be able to write to that.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tandem._mps import MOST_DIGITS, PIPES, PROGRAM, Control, is_running
from tandemd.edges.children import unblocked

LOGS = "CUDA_MPS_LOG_DIRECTORY"
SAID = "said"  # log file: in the foreground MPS writes its log to its output
LOG_FOLDER = "logs"  # not "log": MPS has a fifo of that name, and logs nothing without it
STARTED = "started-by-tandemd"  # holds its pid
MOST_WORDS = 4096  # bytes of its last output
FILE = "mps.toml"  # the new interface's start file
MOST_PATH_BYTES = 87  # the longest socket name still fits; with more it ends silently
SERVERS = "/usr/sbin"  # where Debian has MPS's programs; users' shells do not search it
ENDS_S = 5.0  # time that it gets to end
POLL_S = 0.02


class OwnMps:
    """Our own control daemon, one at most. Methods are for one thread at a time."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        """`directory` is its place, unless the environment names another."""
        named = environment.get(PIPES)
        self.directory = Path(named or directory)
        self.logs = self.directory / LOG_FOLDER
        self._is_named = bool(named)
        self._has_file = False
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Return the pid of the running one; None: none of ours runs. Any thread."""
        child = self._child  # the watching thread may clear it meanwhile
        if child is not None and child.poll() is None:
            return child.pid
        try:
            with self._opened() as place:
                pid = int(_read(STARTED, place))
        except (OSError, ValueError):
            return None
        return pid if is_running(pid) else None

    def start(self, words: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start it with this environment, and with its pipe and log in their places.

        Raises:
            OSError: the directory cannot be made, is not ours or has too long a name; or there is
                no such program.
        """
        if (length := len(os.fsencode(self.directory))) > MOST_PATH_BYTES:
            why = f"its path has {length} bytes, and mps takes at most {MOST_PATH_BYTES}"
            raise OSError(errno.ENAMETOOLONG, why, str(self.directory))
        if (path := shutil.which(PROGRAM, path=environment.get("PATH"))) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), PROGRAM)
        self._make()
        with self._opened(LOG_FOLDER) as logs:
            said = _create(SAID, logs)
        try:
            self._child = subprocess.Popen(
                unblocked([path, *words]),  # MPS's servers inherit the signal mask, too
                env={**environment, **self._variables(environment)},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,  # Ctrl-C is for the daemon only: MPS's clients may live on
            )
        finally:
            os.close(said)

    def _variables(self, environment: Mapping[str, str]) -> dict[str, str]:
        search = [path for path in (environment.get("PATH"), SERVERS) if path]
        return {
            "PATH": os.pathsep.join(search),
            PIPES: str(self.directory),
            LOGS: str(self.logs),
        }

    def write_file(self, text: str) -> Path:
        """Write the file that it is started from.

        Raises:
            OSError: as `start`.
        """
        self._make()
        with self._opened() as place:
            _write(FILE, text, place)
        self._has_file = True
        return self.directory / FILE

    def claim(self) -> None:
        """Record that it is ours, for the next daemon, once it is up.

        Raises:
            OSError: as `start`.
        """
        if self._child is not None and self._child.poll() is None:
            with self._opened() as place:
                _write(STARTED, f"{self._child.pid}\n", place)

    def why_not(self) -> str:
        """Return why it is not up after a start; empty: it may still come up."""
        code = self._child.poll() if self._child is not None else None
        return "" if code is None else f"ended with code {code}{self._last_words()}"

    def _last_words(self) -> str:
        try:
            with self._opened(LOG_FOLDER) as logs:
                said = _read(SAID, logs, MOST_WORDS).strip()
        except OSError:
            return ""
        return f": {said.splitlines()[-1]}" if said else ""

    def give_up(self) -> None:
        """End one that was just started and has no clients. Blocks for 2 `ENDS_S` at most."""
        if self._child is None:
            return
        for end in (self._child.terminate, self._child.kill):
            if self._child.poll() is None:
                end()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._child.wait(ENDS_S)
        self.forget()

    def forget(self) -> None:
        """Forget it if it has ended."""
        if self._child is not None and self._child.poll() is not None:
            self._child = None

    def end(self, control: Control) -> str:
        """End it unless it has clients, which would die with it. Returns why it runs on, or "".

        Blocks while it is queried, and for `ENDS_S`.
        """
        if (pid := self.pid) is None:
            return ""
        if (servers := control.servers()) is None:
            return "it does not answer"
        if any(control.clients(server) != [] for server in servers):
            return "it has clients"
        end_s = time.monotonic() + ENDS_S
        while is_running(pid):
            if time.monotonic() >= end_s:
                hung = ", ".join(str(server.pid) for server in servers if is_running(server.pid))
                waits = f": it waits for the server {hung}" if hung else ""
                return f"it was told to end, and did not within {ENDS_S:g} s{waits}"
            control.quit()  # repeated, in case it was busy and missed it
            time.sleep(POLL_S)
        self.forget()
        self._clear_away()
        return ""

    def cut_said(self, most_bytes: int) -> None:
        """Truncate the log once it is longer than that: it may be in memory."""
        with contextlib.suppress(OSError), self._opened(LOG_FOLDER) as logs:
            file = os.open(SAID, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=logs)
            try:
                if os.fstat(file).st_size > most_bytes:
                    os.truncate(file, 0)
            finally:
                os.close(file)

    def _make(self) -> None:
        """Create what is missing, and leave the rest: the environment may name any place."""
        self.directory.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            self.directory.mkdir()
            self.directory.chmod(0o755)  # its clients look for the pipe there
        with self._opened() as place, contextlib.suppress(FileExistsError):
            os.mkdir(LOG_FOLDER, dir_fd=place)

    def _clear_away(self) -> None:
        """Remove our directory; of one that the environment names, only what is certainly ours."""
        if not self._is_named:
            shutil.rmtree(self.directory, ignore_errors=True)
            return
        with contextlib.suppress(OSError), self._opened(LOG_FOLDER) as logs:
            _remove((SAID,), logs)
        with contextlib.suppress(OSError), self._opened() as place:
            _remove((STARTED, *([FILE] if self._has_file else [])), place)
            os.rmdir(LOG_FOLDER, dir_fd=place)

    @contextlib.contextmanager
    def _opened(self, *names: str) -> Iterator[int]:
        """Open our directory, or one in it.

        Raises:
            OSError: it does not exist, is a link, or belongs to neither root nor us.
        """
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
        places = [os.open(self.directory, flags)]
        try:
            for name in names:
                places.append(os.open(name, flags, dir_fd=places[-1]))
            if any(os.fstat(place).st_uid not in (0, os.geteuid()) for place in places):
                raise PermissionError(errno.EPERM, "not ours", str(self.directory.joinpath(*names)))
            yield places[-1]
        finally:
            for place in places:
                os.close(place)


def _read(name: str, place: int, most: int = MOST_DIGITS + 1) -> str:
    file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=place)
    try:
        facts = os.fstat(file)
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "not ours", name)
        return os.read(file, most).decode("ascii", "replace")
    finally:
        os.close(file)


def _create(name: str, place: int) -> int:
    """Create a file anew. It is opened for appending, so that writes go on after a truncation."""
    _remove((name,), place)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
    return os.open(name, flags, 0o644, dir_fd=place)


def _write(name: str, text: str, place: int) -> None:
    with open(_create(name, place), "w", encoding="utf-8") as file:
        file.write(text)


def _remove(names: Sequence[str], place: int) -> None:
    for name in names:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=place)
