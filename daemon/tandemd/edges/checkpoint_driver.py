"""The driver's checkpoint calls, each for a process by its pid.

(CUDA driver manual, "CUDA Checkpointing".) They may be made for processes of one's own user, and by
root for all (NVIDIA/cuda-checkpoint#25).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Literal

LIBRARY = "libcuda.so.1"
LOCK_TIMEOUT_MS = 10_000
SUCCESS, NOT_INITIALIZED = 0, 3
RUNNING, LOCKED, CHECKPOINTED = range(3)  # CUprocessState; what is above has failed
PREFIX = "cuCheckpointProcess"
Call = Literal["GetState", "Lock", "Checkpoint", "Restore", "Unlock"]


class CheckpointError(Exception):
    """The driver says no; the text is for people."""


def _libcuda() -> ctypes.CDLL:
    return ctypes.CDLL(LIBRARY)


class CheckpointDriver:
    """For any thread; a call may take minutes, and nobody promises that it ends."""

    def __init__(self, load: Callable[[], ctypes.CDLL] = _libcuda) -> None:
        """`load` finds the driver when it is first needed; OSError: there is none."""
        self._load = load
        self._driver: ctypes.CDLL | None = None

    def call(self, name: Call, pid: int, *, is_there: Callable[[], bool]) -> int:
        """Make one; the state that GetState says, else `RUNNING`.

        `is_there`: whether the process lives, for the pid may be another's by the time of a call.

        Raises:
            CheckpointError: the driver refuses, has no such call, or the process has ended.
        """
        try:
            if self._driver is None:
                self._driver = self._load()
            function = self._driver[PREFIX + name]
        except (OSError, AttributeError) as error:
            raise CheckpointError("this driver has no checkpoints; 570 and newer have") from error
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
        # struct CUcheckpointLockArgs: the timeout, and room for what may come.
        return (ctypes.c_uint * 16)(LOCK_TIMEOUT_MS)
    return None
