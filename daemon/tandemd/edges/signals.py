"""Signals to a job's processes: only what its user could send, and only to those processes.

The kernel checks what the daemon may do, which can be more than the job's user may. So this module
checks who owns each process now, as kill(2) does, because a process may have executed a setuid
program. And as a pid may be reused, the signal goes through the pidfd.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

from tandemd.edges.peers import Pidfd


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A process."""

    pid: int
    pidfd: Pidfd | None  # None: this kernel has no pidfds


def why_not(target: Target, *, uid: int) -> str:
    """Return why the user cannot signal the process; empty: they can, or it has ended."""
    return send(target, 0, uid=uid)


def send(target: Target, number: int, *, uid: int) -> str:
    """Send a signal, or check with 0 whether one could be sent.

    Returns why it was not sent; empty: it was, or the process has ended.
    """
    if target.pidfd is None:
        return f"pid {target.pid}: this kernel has no pidfds; Linux 5.3 and newer do"
    try:
        owners = _owners(target.pid)
        # Checked after the read: if the process lives now, the pid, and so the owners, are its own.
        if target.pidfd.is_there() and uid and uid not in owners:
            return f"pid {target.pid} runs as uid {min(owners)} now, which uid {uid} may not signal"
        target.pidfd.send(number)
        if number not in (0, signal.SIGKILL):
            target.pidfd.send(signal.SIGCONT)  # lets a stopped process notice the signal
    except (ProcessLookupError, FileNotFoundError):
        return ""
    except PermissionError:
        return f"pid {target.pid}: the daemon, of uid {os.geteuid()}, may not signal uid {uid}"
    except OSError as error:
        return f"pid {target.pid}: {error.strerror}"
    return ""


def _owners(pid: int) -> set[int]:
    """Read the real and the saved uid; users with one of them may signal the process."""
    with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as lines:
        said = next(line for line in lines if line.startswith("Uid:"))
    _, real, _, saved, _ = said.split()
    return {int(real), int(saved)}
