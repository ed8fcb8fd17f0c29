"""Programs of another user: `python as_user.py UID COMMAND...`, for tests that root runs.

They may read all files, for this Python may be in a home of root's; besides they have no rights.
"""

import ctypes
import os
import sys

_READ = 2  # CAP_DAC_READ_SEARCH
_KEEP, _AMBIENT, _RAISE = 8, 47, 2  # PR_SET_KEEPCAPS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE
_VERSION = 0x20080522  # _LINUX_CAPABILITY_VERSION_3


def become(uid):
    """From now on this process, with one thread, is of this user."""
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
    """What starts the command as this user; None: as ours."""
    return list(command) if uid is None else [sys.executable, __file__, str(uid), *command]


if __name__ == "__main__":
    become(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])
