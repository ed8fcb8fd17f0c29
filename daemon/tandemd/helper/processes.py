"""Which process a descriptor from the daemon means, and whether it is one that Tandem may save."""

from __future__ import annotations

import os
from pathlib import Path

from tandem.errors import AccessError, StateError, UsageError
from tandemd.edges.peers import Pidfd

SHIM = "libtandem.so"
_DELETED = " (deleted)"  # as the kernel says of a library that an upgrade has replaced
_PID = "Pid:"


class Process:
    """A process that has the preload library in it, held by a pidfd of ours."""

    def __init__(self, descriptor: int) -> None:
        """What a descriptor means; it stays the caller's.

        Raises:
            UsageError: it is no pidfd.
            StateError: the process has ended.
            AccessError: it is not under Tandem.
        """
        self.pid = _pid_of(descriptor)
        self._pidfd = Pidfd(os.dup(descriptor))
        if not _has_shim(self.pid):
            self._check_there()  # one that is about to end has no libraries any more
            raise AccessError(f"pid {self.pid} is not under Tandem: it has no {SHIM}")
        self._check_there()  # that was its own, and no later one's of this pid

    def is_there(self) -> bool:
        """Whether it lives. Any thread."""
        return self._pidfd.is_there()

    def _check_there(self) -> None:
        if not self.is_there():
            raise StateError("the process has ended")


def _pid_of(descriptor: int) -> int:
    """Only a pidfd has a pid there; -1 of one that has ended, 0 of one that we cannot see."""
    lines = Path(f"/proc/self/fdinfo/{descriptor}").read_text().splitlines()
    said = [line.removeprefix(_PID).strip() for line in lines if line.startswith(_PID)]
    if not said:
        raise UsageError("the descriptor is no pidfd")
    if (pid := int(said[0])) <= 0:
        raise StateError("the process has ended")
    return pid


def _has_shim(pid: int) -> bool:
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
    except OSError:
        return False
    return any(line.removesuffix(_DELETED).endswith(f"/{SHIM}") for line in lines)
