"""The driver's checkpoint calls: a whole process to the host and back.

They wait for the process's work, copy all of its memory and need seconds, so a thread of its own
makes them, one after the other; on the virtual clock, where a run has to repeat, the caller does.
(CUDA driver manual, "CUDA Checkpointing".)
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import structlog

from tandemd.edges.worker import Worker

LIBRARY = "libcuda.so.1"
LOCK_TIMEOUT_MS = 10_000
SUCCESS, NOT_INITIALIZED = 0, 3
RUNNING, LOCKED, CHECKPOINTED = range(3)  # CUprocessState; what is above has failed
PREFIX = "cuCheckpointProcess"
CALLS = ("GetState", "Lock", "Checkpoint", "Restore", "Unlock")

log = structlog.get_logger(__name__)


class CheckpointError(Exception):
    """The driver says no; the text is for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A process. The driver knows pids alone, and this may be another's by the time of a call."""

    pid: int
    is_there: Callable[[], bool]  # the process still lives; any thread


def _libcuda() -> ctypes.CDLL:
    return ctypes.CDLL(LIBRARY)


class Checkpointer:
    """Saves processes and brings them back, in the order it was asked for."""

    def __init__(
        self,
        *,
        post: Callable[[Callable[[], None]], None],
        at_once: bool,
        load: Callable[[], ctypes.CDLL] = _libcuda,
    ) -> None:
        """`post` runs something on the loop's thread; `at_once`: no other thread is used.

        `load` finds the driver when it is first needed; OSError: there is none.
        """
        self._post = post
        self._worker = Worker("checkpoints", at_once=at_once)
        self._load = load
        self._driver: ctypes.CDLL | None = None
        self._locked: set[Target] = set()  # by us, and not let go on since

    def move(self, target: Target, *, away: bool, tell: Callable[[str], None]) -> None:
        """Save the process, or bring it back if it was saved.

        `tell` hears on the loop's thread why that could not be; "" if it was done.
        """
        self._worker.do(lambda: self._post(partial(tell, self._try(target, away=away))))

    def close(self, timeout_s: float) -> None:
        """Wait until all that was asked for is done, for so long at most."""
        self._worker.finish(timeout_s)

    def _try(self, target: Target, *, away: bool) -> str:
        self._locked = {each for each in self._locked if each.is_there()}
        try:
            if away:
                self._save(target)
            else:
                self._bring_back(target)
        except CheckpointError as problem:
            log.warning("checkpoint", pid=target.pid, away=away, problem=str(problem))
            return str(problem)
        except Exception:  # whoever waits for it has to hear something
            log.exception("checkpoint", pid=target.pid, away=away)
            return "the daemon failed at it; its log says why"
        return ""

    def _save(self, target: Target) -> None:
        # struct CUcheckpointLockArgs: the timeout, and room for what may come.
        self._call("Lock", target, (ctypes.c_uint * 16)(LOCK_TIMEOUT_MS))
        self._locked.add(target)
        try:
            self._call("Checkpoint", target, None)
        except CheckpointError:
            self._unlock(target)
            raise

    def _unlock(self, target: Target) -> None:
        self._call("Unlock", target, None)
        self._locked.discard(target)

    def _bring_back(self, target: Target) -> None:
        state = ctypes.c_int(RUNNING)
        try:
            self._call("GetState", target, ctypes.byref(state))
        except CheckpointError:
            if target in self._locked:
                raise
            return  # the driver knows nothing of checkpoints, or not of this process
        if state.value > CHECKPOINTED:
            raise CheckpointError("the driver failed at it, and says that the process is lost")
        if state.value == CHECKPOINTED:
            self._call("Restore", target, None)
        if state.value != RUNNING:
            self._unlock(target)

    def _call(self, name: str, target: Target, argument: object) -> None:
        try:
            if self._driver is None:
                self._driver = self._load()
            function = self._driver[PREFIX + name]
        except (OSError, AttributeError) as error:
            raise CheckpointError("this driver has no checkpoints; 570 and newer have") from error
        if not target.is_there():
            raise CheckpointError("the process has ended")
        status = function(target.pid, argument)
        if status == NOT_INITIALIZED:
            self._driver.cuInit(0)
            status = function(target.pid, argument)
        if status != SUCCESS:
            raise CheckpointError(f"{PREFIX}{name} answers {self._name_of(status)}")

    def _name_of(self, status: int) -> str:
        name = ctypes.c_char_p()
        if self._driver is not None:
            self._driver.cuGetErrorName(status, ctypes.byref(name))
        return name.value.decode() if name.value else f"error {status}"
