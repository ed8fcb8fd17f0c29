"""Proves, before anything relies on it, that sets of SMs of two processes are disjoint.

The proof is run by `python -m tandem._set_probe`, a process of its own, because a sick driver may
hang or kill it. It can take half a minute, so no caller waits: a thread probes one GPU after the
other. The driver's answer stands while the daemon runs. A proof also survives a restart of the
daemon, on the same GPU under the same driver, until the machine reboots. Without an answer (MPS is
not ready, or serves another user; the GPU is full of others' work) the probe is repeated at growing
intervals.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import structlog

from tandemd.core.model import Split
from tandemd.edges.gpus import Gpu

PROGRAM = "tandem._set_probe"
TIMEOUT_S = 60.0
END_S = 3.0
PAUSE_S = 10.0  # before the second attempt
LONGEST_PAUSE_S = 600.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Proof:
    """The result: sets, or why there are none."""

    split: Split | None = None
    problem: str = ""
    is_final: bool = True  # False: there was no answer

    @property
    def is_under_way(self) -> bool:
        """Tell whether there is no result yet."""
        return self.split is None and not self.problem


UNDER_WAY = Proof(is_final=False)
Ask = Callable[[Mapping[str, str]], Proof]


class EndedError(Exception):
    """`Asker.stop` interrupted the probe."""


class Asker:
    """Runs the probe. `stop` is for any thread, and ends a probe that is under way."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._stopping = False

    def __call__(self, environment: Mapping[str, str]) -> Proof:
        """Blocks for `TIMEOUT_S` at most. `environment` names the GPU, and where MPS is."""
        try:
            with self._begin(environment) as child:
                try:
                    said = json.loads(child.communicate(timeout=TIMEOUT_S)[0])
                finally:
                    child.kill()
            problem, is_final = str(said["problem"]), bool(said["is_answer"])
            split = Split(groups=int(said["groups"]), group_sms=int(said["group_sms"]))
        except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
            if self._stopping:
                raise EndedError from error
            return Proof(None, f"the probe failed: {error}", is_final=False)
        return Proof(None, problem, is_final) if problem else Proof(split)

    def stop(self) -> None:
        """End the probe and wait for that: its processes on a GPU would keep MPS from ending."""
        with self._lock:
            self._stopping = True
            child = self._child
        if child is None:
            return
        child.terminate()  # it then ends its own two children
        try:
            child.wait(END_S)
        except subprocess.TimeoutExpired:
            child.kill()
            # A process inside the driver may not be killable.
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(END_S)

    def _begin(self, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._stopping:
                raise EndedError
            self._child = subprocess.Popen(
                [sys.executable, "-m", PROGRAM],
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            return self._child


@dataclass(slots=True)
class _Case:
    """One GPU; protected by `SetProofs._changed`."""

    gpu: Gpu
    is_wanted: bool = True  # False: the result is kept, and no more is tried
    proof: Proof = UNDER_WAY
    due_s: float = 0.0  # monotonic clock
    pause_s: float = PAUSE_S


class SetProofs:
    """The proofs for GPUs that want sets. All methods except `run` are for any thread."""

    def __init__(
        self,
        *,
        environment: Callable[[Gpu], Mapping[str, str] | str],
        tell: Callable[[], None],
        ask: Ask,
        at_once: bool,
        known: Callable[[Gpu], Split | None] = lambda _: None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`environment` returns that of a program on this GPU, or why none may be started now.

        `tell` is called when results have changed. `known` returns what an earlier daemon proved
        for a GPU; any thread. `at_once`: `want` waits for the results (virtual clock, where a run
        must be reproducible).
        """
        self._environment = environment
        self._tell = tell
        self._ask = ask
        self._at_once = at_once
        self._known = known
        self._now_s = now_s
        self._cases: dict[str, _Case] = {}  # by UUID; under `_changed`
        self._changed = threading.Condition()
        self._stopping = False

    def want(self, gpus: Iterable[Gpu], *, again: bool = False) -> None:
        """Prove these GPUs and no others; `again`: retry at once where there was no answer."""
        with self._changed:
            for known in self._cases.values():
                known.is_wanted = False
            for gpu in gpus:
                wanted = self._cases.get(gpu.uuid_text) or self._begin(gpu)
                wanted.gpu, wanted.is_wanted = gpu, True
                if again and not wanted.proof.is_final:
                    wanted.proof, wanted.due_s, wanted.pause_s = UNDER_WAY, 0.0, PAUSE_S
            self._changed.notify_all()
        if self._at_once:
            while (case := self._next(new_alone=True)) is not None:
                self._prove(case)

    def of(self, gpus: Iterable[Gpu]) -> dict[int, Proof]:
        """Return by index what is known of GPUs that are, or were, wanted."""
        with self._changed:
            cases = {gpu.index: self._cases.get(gpu.uuid_text) for gpu in gpus}
            return {index: case.proof for index, case in cases.items() if case is not None}

    def run(self) -> None:
        """Probe until `stop` is called."""
        with contextlib.suppress(EndedError):
            while (case := self._wait()) is not None:
                self._tell()
                self._prove(case)
                self._tell()

    def stop(self) -> None:
        """End `run`."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def _begin(self, gpu: Gpu) -> _Case:
        case = self._cases[gpu.uuid_text] = _Case(gpu)
        if (split := self._known(gpu)) is not None:
            case.proof = Proof(split)
            log.info("sets of SMs were proved to be disjoint before this start", gpu=gpu.index)
        return case

    def _wait(self) -> _Case | None:
        """Return the next case that is due; None: `run` must end."""
        with self._changed:
            while not self._stopping:
                case = self._next()
                if case is not None and case.due_s <= self._now_s():
                    case.proof = UNDER_WAY
                    return case
                self._changed.wait(None if case is None else case.due_s - self._now_s())
        return None

    def _next(self, *, new_alone: bool = False) -> _Case | None:
        open_cases = [
            case
            for case in self._cases.values()
            if case.is_wanted
            and (case.proof.is_under_way or not (case.proof.is_final or new_alone))
        ]
        return min(open_cases, key=lambda case: case.due_s, default=None)

    def _prove(self, case: _Case) -> None:
        own = self._environment(case.gpu)
        if isinstance(own, str):
            proof = Proof(None, own, is_final=False)
        else:
            proof = self._ask({**own, "CUDA_VISIBLE_DEVICES": case.gpu.uuid_text})
        with self._changed:
            case.due_s = self._now_s() + case.pause_s
            case.pause_s = min(2 * case.pause_s, LONGEST_PAUSE_S)
            case.proof = proof
            is_wanted = case.is_wanted
        if is_wanted:
            _log(case.gpu, proof)


def _log(gpu: Gpu, proof: Proof) -> None:
    if proof.split is not None:
        groups, sms = proof.split.groups, proof.split.group_sms
        log.info("sets of SMs are disjoint", gpu=gpu.index, groups=groups, group_sms=sms)
        return
    log.warning(
        "sets of SMs are not available, continuing in mode mps with static percentages",
        gpu=gpu.index,
        reason=proof.problem,
        tried_again=not proof.is_final,
    )
