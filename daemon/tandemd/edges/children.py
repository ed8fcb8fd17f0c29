"""What every program that the daemon starts needs at its start."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence

# Python ignores two signals by itself, which whoever takes its place would ignore, too.
_START = """
import os, signal, sys
for number in (signal.SIGPIPE, signal.SIGXFSZ):
    signal.signal(number, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_SETMASK, ())
os.execv(sys.argv[1], sys.argv[1:])
"""


_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4  # linux/prctl.h


def keep_capabilities() -> None:
    """What the daemon may do (AmbientCapabilities= of its unit) is not for programs it starts.

    Before there is another thread: each has these sets for itself.
    """
    ctypes.CDLL(None).prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)


def unblocked(words: Sequence[str]) -> list[str]:
    """A program, by its whole path, that no signal is blocked in.

    The daemon waits for its own; blocked, they would end no child of it. That is changed in the
    child, by a program that becomes this one: not between fork and exec, where other threads' locks
    may be held, and where gRPC would have handlers run.
    """
    return [sys.executable, "-I", "-S", "-c", _START, *words]
