"""What the helper does for each question."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import assert_never

from tandem.errors import StateError, UsageError
from tandemd import __version__
from tandemd.core.space.layouts import Layout
from tandemd.edges.checkpoint_driver import CheckpointDriver, CheckpointError
from tandemd.edges.mig import MigLayouts
from tandemd.helper.processes import Process
from tandemd.helper.root_mps import RootMps
from tandemd.helper.wire import (
    Answer,
    Checkpoint,
    CutGpu,
    EndMps,
    Hello,
    Questions,
    StartMps,
    TrimMps,
)


class Verbs:
    """Dispatches questions. `do` is for any thread."""

    def __init__(self, driver: CheckpointDriver, mps: RootMps) -> None:
        """`driver` makes the checkpoint calls."""
        self._driver = driver
        self._mps = mps
        self._cutting = threading.Lock()
        self._lock = threading.Lock()
        self._busy: set[int] = set()  # pids with a call under way

    def do(self, question: Questions, descriptors: Sequence[int]) -> Answer:
        """Carry out a question, which may take minutes.

        Raises:
            TandemError: it was not done; the text says why.
        """
        wanted = 1 if isinstance(question, Checkpoint) else 0
        if len(descriptors) != wanted:
            raise UsageError(f"{question.verb} takes {wanted or 'no'} descriptor")
        match question:
            case Hello():
                return Answer(version=__version__)
            case CutGpu():
                return self._cut(question)
            case Checkpoint():
                return self._checkpoint(question, Process(descriptors[0]))
            case StartMps():
                return self._start_mps(question)
            case TrimMps():
                self._mps.trim()
                return Answer()
            case EndMps():
                self._mps.end()
                return Answer()
            case _:
                assert_never(question)

    def _cut(self, question: CutGpu) -> Answer:
        """Cut all or nothing; NVML checks GPU and profiles, and whether the GPU is in use."""
        layout = Layout(gpu=question.gpu, profiles=question.profiles)
        with self._cutting:
            return Answer(cut=MigLayouts().apply(layout))

    def _start_mps(self, question: StartMps) -> Answer:
        """Start MPS; only UUIDs that NVML knows get into its environment."""
        if question.gpus:
            layouts = MigLayouts()
            for gpu in question.gpus:
                layouts.uuid(Layout(gpu=gpu, profiles=()))
        return Answer(pipes=str(self._mps.start(question.gpus)))

    def _checkpoint(self, question: Checkpoint, process: Process) -> Answer:
        """Make one call at a time for a process: an earlier daemon's may still be under way."""
        with self._reserved(process.pid):
            try:
                state = self._driver.call(question.call, process.pid, is_there=process.is_there)
            except CheckpointError as error:
                raise StateError(str(error)) from error
        return Answer(state=state, process=process.pid)

    @contextlib.contextmanager
    def _reserved(self, pid: int) -> Iterator[None]:
        with self._lock:
            if pid in self._busy:
                raise StateError(f"the driver is still moving pid {pid}")
            self._busy.add(pid)
        try:
            yield
        finally:
            with self._lock:
                self._busy.remove(pid)
