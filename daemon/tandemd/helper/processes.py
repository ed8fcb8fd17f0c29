"""Identifies the process behind a descriptor from the daemon, and whether Tandem may save it."""

from __future__ import annotations

import os
from pathlib import Path

from tandem.errors import AccessError, StateError, UsageError
from tandemd.edges.peers import Pidfd

SHIM = "libtandem.so"
_DELETED = " (deleted)"  # the kernel's suffix for a library that an upgrade has replaced
_PID = "Pid:"


class Process:
    """A process that has loaded the preload library, held by a pidfd of ours."""

    def __init__(self, descriptor: int) -> None:
        """Resolve a descriptor, which stays the caller's.

        Raises:
            UsageError: it is no pidfd.
            StateError: the process has ended.
            AccessError: the process does not run under Tandem.
        """
        self.pid = _pid_of(descriptor)
        self._pidfd = Pidfd(os.dup(descriptor))
        if not _has_shim(self.pid):
            self._check_there()  # an exiting process has no libraries any more
            raise AccessError(f"pid {self.pid} is not under Tandem: it has no {SHIM}")
        # The maps just read were its own, not those of a later process with its pid.
        self._check_there()

    def is_there(self) -> bool:
        """Tell whether it lives. Any thread."""
        return self._pidfd.is_there()

    def _check_there(self) -> None:
        if not self.is_there():
            raise StateError("the process has ended")


def _pid_of(descriptor: int) -> int:
    """Read the pid from fdinfo, where only pidfds have one; -1 if ended, 0 if invisible to us."""
    lines = Path(f"/proc/self/fdinfo/{descriptor}").read_text().splitlines()
    said = [line.removeprefix(_PID).strip() for line in lines if line.startswith(_PID)]
    if not said:
        raise UsageError("the descriptor is not a pidfd")
    if (pid := int(said[0])) <= 0:
        raise StateError("the process has ended")
    return pid


def _has_shim(pid: int) -> bool:
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
    except OSError:
        return False
    return any(line.removesuffix(_DELETED).endswith(f"/{SHIM}") for line in lines)
