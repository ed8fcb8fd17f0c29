"""Moves whole processes to the host and back by the driver's checkpoint calls.

The calls wait for the process's work, copy all of its memory and take seconds, and nothing
guarantees that they return. So each runs on a thread of its own, and none keeps another process
from coming back. The caller limits how many run at a time. On the virtual clock, where a run must
be reproducible, the caller's thread makes them. A daemon that does not run as root leaves calls for
other users' processes to the helper.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import structlog

from tandem.errors import TandemError
from tandemd.edges.checkpoint_driver import (
    CHECKPOINTED,
    RUNNING,
    Call,
    CheckpointDriver,
    CheckpointError,
)
from tandemd.edges.helper import WANTED, Helper
from tandemd.edges.peers import Pidfd

RETRY_S = 0.25  # other processes may hold the room that this one needs to come back
MOST_AT_ONCE = 16  # threads that bring all processes back
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A process. The driver knows only its pid, which may be reused by the time of a call."""

    pid: int
    is_there: Callable[[], bool]  # the process still lives; any thread
    uid: int
    pidfd: Pidfd | None = None  # None: this kernel has no pidfds


@dataclass(slots=True)
class _Known:
    """What was done with a process; belongs to the thread that moves it."""

    is_moving: bool = False
    is_locked: bool = False  # by this or an earlier daemon, and not unlocked since
    problem: str = ""  # of the last attempt, as logged


def _check_not_lost(state: int) -> None:
    if state > CHECKPOINTED:
        raise CheckpointError("the driver failed to move it, and says that the process is lost")


class Checkpointer:
    """Saves processes and brings them back. For any thread."""

    def __init__(
        self,
        *,
        post: Callable[[Callable[[], None]], None],
        at_once: bool,
        driver: CheckpointDriver,
        helper: Helper | None = None,
    ) -> None:
        """`post` runs something on the loop's thread; `at_once`: no other thread moves anything.

        `helper` makes the calls for other users' processes; None: the daemon may make them.
        """
        self._post = post
        self._at_once = at_once
        self._driver = driver
        self._helper = helper
        self._known: dict[Target, _Known] = {}
        self._knowing = threading.Lock()

    def move(self, target: Target, *, away: bool, tell: Callable[[str], None]) -> None:
        """Save the process unless it is saved already, or bring it back if it was saved.

        `tell` is called on the loop's thread with the reason why that failed, or "" if it was done.
        Until then the caller must request nothing else for this process.
        """

        def errand() -> None:
            self._post(partial(tell, self._try(target, away=away)))

        if self._at_once:
            errand()
            return
        try:
            threading.Thread(target=errand, name="checkpoint", daemon=True).start()
        except RuntimeError as error:
            self._post(partial(tell, f"the daemon cannot start a thread for it: {error}"))

    def bring_back(
        self, targets: Sequence[Target], *, timeout_s: float, is_over: threading.Event | None = None
    ) -> dict[Target, str]:
        """Bring all targets back; those that cannot come yet are retried until the timeout.

        A process that is being saved comes back once that is done. Returns those that stay saved,
        and why. `is_over` is set when all are back, or by a caller that no longer wants to wait.
        """
        if not targets:
            return {}
        waiting = deque(targets)
        staying = dict.fromkeys(targets, "the driver has not answered")
        is_over = is_over or threading.Event()

        def work() -> None:
            while not is_over.is_set():
                try:
                    target = waiting.popleft()
                except IndexError:
                    return
                problem = self._try(target, away=False)
                if problem and target.is_there():
                    staying[target] = problem
                    waiting.append(target)
                    is_over.wait(RETRY_S)
                else:
                    del staying[target]
                    if not staying:
                        is_over.set()

        with contextlib.suppress(RuntimeError):  # no more threads can be started
            for _ in targets[:MOST_AT_ONCE]:
                threading.Thread(target=work, name="checkpoint", daemon=True).start()
        is_over.wait(timeout_s)
        is_over.set()
        return dict(staying)

    def _try(self, target: Target, *, away: bool) -> str:
        known = self._begin(target)
        if known is None:
            return "the driver is still moving it"
        problem = self._do(target, known, away=away)
        if problem and problem != known.problem:  # it may be tried often, so log each problem once
            log.warning("checkpoint", pid=target.pid, away=away, problem=problem)
        known.problem = problem
        known.is_moving = False
        return problem

    def _begin(self, target: Target) -> _Known | None:
        with self._knowing:
            self._known = {each: known for each, known in self._known.items() if each.is_there()}
            known = self._known.setdefault(target, _Known())
            if known.is_moving:
                return None
            known.is_moving = True
            return known

    def _do(self, target: Target, known: _Known, *, away: bool) -> str:
        try:
            if away:
                self._save(target, known)
            else:
                self._bring_back(target, known)
        except CheckpointError as problem:
            return str(problem)
        except Exception:  # the waiting caller must get an answer
            log.exception("checkpoint", pid=target.pid, away=away)
            return "the daemon failed to move it; its log says why"
        return ""

    def _save(self, target: Target, known: _Known) -> None:
        state = self._state_of(target)
        _check_not_lost(state)
        if state == RUNNING:
            self._call("Lock", target)
        known.is_locked = True
        if state == CHECKPOINTED:
            return  # an earlier daemon saved it
        try:
            self._call("Checkpoint", target)
        except CheckpointError:
            self._unlock(target, known)
            raise

    def _unlock(self, target: Target, known: _Known) -> None:
        self._call("Unlock", target)
        known.is_locked = False

    def _bring_back(self, target: Target, known: _Known) -> None:
        try:
            state = self._state_of(target)
        except CheckpointError:
            if known.is_locked:
                raise
            return  # the driver does not support checkpoints, or does not know this process
        _check_not_lost(state)
        if state == RUNNING:
            return
        known.is_locked = True
        if state == CHECKPOINTED:
            self._call("Restore", target)
        self._unlock(target, known)

    def _state_of(self, target: Target) -> int:
        return self._call("GetState", target)

    def _call(self, name: Call, target: Target) -> int:
        helper = None if target.uid == os.geteuid() else self._helper
        if helper is not None and helper.is_there and target.pidfd is not None:
            try:
                return helper.checkpoint(name, target.pidfd.fileno())
            except TandemError as error:
                raise CheckpointError(str(error)) from error
        try:
            return self._driver.call(name, target.pid, is_there=target.is_there)
        except CheckpointError as error:
            if helper is None or helper.is_there or not target.is_there():
                raise
            whose = f"the process belongs to uid {target.uid}, the daemon to uid {os.geteuid()}"
            raise CheckpointError(f"{error}; {whose}: {WANTED}") from error
