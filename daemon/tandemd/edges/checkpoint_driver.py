"""The driver's checkpoint calls, each for a process by its pid.

(CUDA driver manual, "CUDA Checkpointing".) They may be made for one's own processes, and by root
for all (NVIDIA/cuda-checkpoint#25).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Literal

LIBRARY = "libcuda.so.1"
LOCK_TIMEOUT_MS = 10_000
SUCCESS, NOT_INITIALIZED = 0, 3
RUNNING, LOCKED, CHECKPOINTED = range(3)  # CUprocessState; higher values mean failure
PREFIX = "cuCheckpointProcess"
Call = Literal["GetState", "Lock", "Checkpoint", "Restore", "Unlock"]


class CheckpointError(Exception):
    """The driver refuses; the text is for people."""


def _libcuda() -> ctypes.CDLL:
    return ctypes.CDLL(LIBRARY)


class CheckpointDriver:
    """Makes the calls. For any thread; a call may take minutes, and may never return."""

    def __init__(self, load: Callable[[], ctypes.CDLL] = _libcuda) -> None:
        """`load` finds the driver when it is first needed; OSError: there is none."""
        self._load = load
        self._driver: ctypes.CDLL | None = None

    def call(self, name: Call, pid: int, *, is_there: Callable[[], bool]) -> int:
        """Make a call; returns the state for GetState, and `RUNNING` for all others.

        `is_there` tells whether the process lives, for the pid may have been reused by then.

        Raises:
            CheckpointError: the driver refuses or has no such call, or the process has ended.
        """
        try:
            if self._driver is None:
                self._driver = self._load()
            function = self._driver[PREFIX + name]
        except (OSError, AttributeError) as error:
            raise CheckpointError(
                "this driver does not support checkpoints; 570 and newer do"
            ) from error
        state = ctypes.c_int(RUNNING)
        argument = _argument(name, state)
        if not is_there():
            raise CheckpointError("the process has ended")
        status = function(pid, argument)
        if status == NOT_INITIALIZED:
            self._driver.cuInit(0)
            status = function(pid, argument)
        if status != SUCCESS:
            raise CheckpointError(f"{PREFIX}{name} answers {self._name_of(status)}")
        return state.value

    def _name_of(self, status: int) -> str:
        name = ctypes.c_char_p()
        if self._driver is not None:
            self._driver.cuGetErrorName(status, ctypes.byref(name))
        return name.value.decode() if name.value else f"error {status}"


def _argument(name: Call, state: ctypes.c_int) -> object:
    if name == "GetState":
        return ctypes.byref(state)
    if name == "Lock":
        # struct CUcheckpointLockArgs: the timeout, then reserved fields.
        return (ctypes.c_uint * 16)(LOCK_TIMEOUT_MS)
    return None
