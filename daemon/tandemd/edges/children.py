"""What every program that the daemon starts needs at startup."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence

# Python itself ignores two signals, and a program that replaces it would inherit that.
_START = """
import os, signal, sys
for number in (signal.SIGPIPE, signal.SIGXFSZ):
    signal.signal(number, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_SETMASK, ())
os.execv(sys.argv[1], sys.argv[1:])
"""


_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4  # linux/prctl.h


def keep_capabilities() -> None:
    """Keep the daemon's capabilities (AmbientCapabilities= of its unit) from programs it starts.

    Call before any other thread starts: capability sets belong to a thread.
    """
    ctypes.CDLL(None).prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)


def unblocked(words: Sequence[str]) -> list[str]:
    """Return a command line that runs a program, named by its whole path, with no signal blocked.

    The daemon blocks the signals that it waits for; a child that inherited the mask could not be
    ended by them. The mask is reset in the child, by a small program that then becomes the wanted
    one: not between fork and exec, where other threads' locks may be held, and where gRPC would
    have handlers run.
    """
    return [sys.executable, "-I", "-S", "-c", _START, *words]
