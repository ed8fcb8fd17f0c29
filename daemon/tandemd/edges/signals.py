"""Signals to the processes of a job: what its user could send, and to no process but those.

The kernel asks what the daemon may, which can be more than the job's user may: so it is looked at
whose each process is by now, as kill(2) does, for a program that is setuid may have come into it. A
pid is no process: whoever has it when the signal is sent is known by its pidfd alone.
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
    pidfd: Pidfd | None  # None: this kernel has none


def why_not(target: Target, *, uid: int) -> str:
    """Why the user cannot signal the process; empty: it can, or the process has ended."""
    return send(target, 0, uid=uid)


def send(target: Target, number: int, *, uid: int) -> str:
    """Send a signal, or look with 0 whether one could be sent.

    Returns why it was not sent; empty: it was, or the process has ended.
    """
    if target.pidfd is None:
        return f"pid {target.pid}: this kernel has no pidfds, Linux 5.3 and newer have"
    try:
        owners = _owners(target.pid)
        # Behind that: while it lives the pid, and so what was just read, is its own.
        if target.pidfd.is_there() and uid and uid not in owners:
            return f"pid {target.pid} runs as uid {min(owners)} now, which uid {uid} may not signal"
        target.pidfd.send(number)
        if number not in (0, signal.SIGKILL):
            target.pidfd.send(signal.SIGCONT)  # or one that is stopped would not notice
    except (ProcessLookupError, FileNotFoundError):
        return ""
    except PermissionError:
        return f"pid {target.pid}: the daemon, of uid {os.geteuid()}, may not signal uid {uid}"
    except OSError as error:
        return f"pid {target.pid}: {error.strerror}"
    return ""


def _owners(pid: int) -> set[int]:
    """Its real and its saved uid; whoever is one of them may signal it."""
    with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as lines:
        said = next(line for line in lines if line.startswith("Uid:"))
    _, real, _, saved, _ = said.split()
    return {int(real), int(saved)}
