"""Runs a program as another user: `python as_user.py UID COMMAND...`, for tests that run as root.

The program may read every file, because this Python may live in root's home directory. It has no
other privileges.
"""

import ctypes
import os
import sys

_READ = 2  # CAP_DAC_READ_SEARCH
_KEEP, _AMBIENT, _RAISE = 8, 47, 2  # PR_SET_KEEPCAPS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE
_VERSION = 0x20080522  # _LINUX_CAPABILITY_VERSION_3


def become(uid):
    """Make this single-threaded process belong to the user `uid` from now on."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_KEEP, 1, 0, 0, 0)
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    sets = (ctypes.c_uint32 * 6)(*[1 << _READ] * 3)
    done = libc.capset((ctypes.c_uint32 * 2)(_VERSION, 0), sets)
    done = done or libc.prctl(_AMBIENT, _RAISE, _READ, 0, 0)
    if done:
        raise OSError(ctypes.get_errno(), "capabilities")


def words(uid, *command):
    """Return the words that start the command as the user `uid`; with None, as the current user."""
    return list(command) if uid is None else [sys.executable, __file__, str(uid), *command]


if __name__ == "__main__":
    become(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])
