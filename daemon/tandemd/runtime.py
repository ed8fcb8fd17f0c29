"""The runtime directory: its place, its mode, and the lock that admits only one daemon."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Mapping
from pathlib import Path

import structlog

from tandem.errors import StateError, UsageError

ATTACH_SOCKET = "attach.sock"
LOGIN_SOCKET = "login.sock"
RPC_SOCKET = "tandemd.sock"
SOCKETS = (ATTACH_SOCKET, LOGIN_SOCKET, RPC_SOCKET)
LOCK_FILE = "tandemd.lock"
SUN_PATH_BYTES = 108
RENEW_S = 3600.0  # how often the lock file is touched
RUNTIME_DIR_VARIABLE = "TANDEM_RUNTIME_DIR"  # for a daemon other than the usual one

log = structlog.get_logger("tandemd")


def runtime_dir(environ: Mapping[str, str], *, uid: int) -> Path:
    """Return where a daemon of this uid listens, in the search order that all of Tandem uses."""
    for variable in (RUNTIME_DIR_VARIABLE, "RUNTIME_DIRECTORY"):
        if named := environ.get(variable, "").split(":")[0]:
            return Path(named)
    if value := environ.get("XDG_RUNTIME_DIR"):
        return Path(value) / "tandem"
    return Path("/run/tandem") if uid == 0 else Path(f"/tmp/tandem-{uid}")


class RuntimeDir:
    """The directory, held until the process ends."""

    def __init__(self, path: Path) -> None:
        """Create the directory if necessary, and lock it.

        Raises:
            StateError: another daemon holds it; the text says which.
            UsageError: it cannot be made or used, or belongs to somebody else.
        """
        self.path = path
        self.has_sockets = False  # all of them exist and must stay
        self._renewed_s = time.monotonic()
        if len(os.fsencode(path / ATTACH_SOCKET)) >= SUN_PATH_BYTES:
            raise UsageError(f"runtime directory '{path}': its path is too long for a socket")
        try:
            self._make()
            self._lock_fd = os.open(path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise UsageError(
                f"runtime directory '{path}': {error.strerror}; "
                f"choose one with --runtime-dir or {RUNTIME_DIR_VARIABLE}"
            ) from error
        self._lock()

    def _make(self) -> None:
        # Other users can pass through to the sockets, but cannot list the directory. Below a
        # private parent it is private anyway; the fallback in /tmp is for its owner alone.
        private = self.path.parent == Path("/tmp")
        try:
            self.path.mkdir()  # not its parents: a path that lacks more is a typing error
            self.path.chmod(0o700 if private else 0o711)
        except FileExistsError:
            pass
        facts = self.path.lstat()
        if not self.path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if facts.st_uid not in (0, os.geteuid()):
            raise UsageError(
                f"runtime directory '{self.path}' belongs to uid {facts.st_uid}, not to you"
            )
        if facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            log.warning(
                "other users can put sockets of their own into the runtime directory; chmod go-w "
                "it",
                runtime_dir=str(self.path),
                mode=f"{stat.S_IMODE(facts.st_mode):04o}",
            )

    def _lock(self) -> None:
        try:
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(self._lock_fd, 32, 0).decode(errors="replace").strip() or "unknown"
            raise StateError(
                f"runtime directory '{self.path}' is held by another tandemd, pid {holder}; "
                "stop it, or choose another directory with --runtime-dir"
            ) from None
        try:
            os.ftruncate(self._lock_fd, 0)
            os.pwrite(self._lock_fd, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            raise UsageError(f"'{self.path / LOCK_FILE}': {error.strerror}") from error

    def why_lost(self) -> str:
        """Return which part was removed, so that clients cannot find this daemon; empty: none.

        Another daemon may take its place, so once the directory is lost, nothing at this path is
        ours to remove.
        """
        now_s = time.monotonic()
        if now_s - self._renewed_s >= RENEW_S:
            self._renewed_s = now_s
            os.utime(self._lock_fd)  # keeps cleaners of /tmp from taking it for abandoned
        try:
            there = os.stat(self.path / LOCK_FILE)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                return ""
            return f"'{LOCK_FILE}'" if self.path.is_dir() else "it"
        ours = os.fstat(self._lock_fd)
        if (there.st_dev, there.st_ino) != (ours.st_dev, ours.st_ino):
            return f"'{LOCK_FILE}'"
        sockets = SOCKETS if self.has_sockets else ()
        gone = next((name for name in sockets if not (self.path / name).exists()), "")
        return gone and f"'{gone}'"

    def clean(self) -> None:
        """Remove the sockets. The lock file stays: removing it would let two daemons in."""
        self.has_sockets = False
        for name in SOCKETS:
            with contextlib.suppress(OSError):  # not there, or not ours
                (self.path / name).unlink()
