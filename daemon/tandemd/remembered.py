"""What the daemon still knows after a restart; edges/journal.py keeps it in a file.

Belongs to the loop's thread. Nobody waits for the disk: what is to be kept is written by a thread
of its own, all that came meanwhile at once. Without a file, or once it cannot be written, the
daemon goes on as if it were for the first time.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path

import msgspec
import structlog

from tandemd.core.interference import Trial
from tandemd.core.model import Job, JobSpec
from tandemd.edges.gpus import Gpu
from tandemd.edges.journal import GoneJob, Journal, JournalError, KeptJob, KeptTrial, Kind, Note
from tandemd.edges.worker import Worker

log = structlog.get_logger(__name__)


class Remembered:
    """What was known before, and what is to be known again."""

    def __init__(self, path: Path | None, *, at_once: bool) -> None:
        """`at_once`: it is written by whoever has something to keep (virtual clock)."""
        self._journal: Journal | None = None
        self._worker = Worker("journal", at_once=at_once)
        self._notes: deque[Note] = deque()
        self._kinds: dict[int, Kind] = {}  # by GPU
        self._trials: dict[Kind, tuple[Trial, ...]] = {}
        self._before: dict[int, KeptJob] = {}  # jobs that have not come back yet
        self._jobs: dict[int, tuple[JobSpec, bool]] = {}  # as they were written; whether paused
        if path is not None:
            self._open(path)

    def trials_on(self, gpus: Sequence[Gpu]) -> dict[int, Sequence[Trial]]:
        """By GPU: what was measured on such ones before the daemon started, the oldest first."""
        self._kinds |= {gpu.index: gpu.kind for gpu in gpus}
        return {gpu.index: self._trials.get(gpu.kind, ()) for gpu in gpus}

    def keep_trials(self, gpu: int, trials: Iterable[Trial]) -> None:
        """They were measured on this GPU; nothing, if it is not known which kind that is."""
        if (kind := self._kinds.get(gpu)) is not None:
            self._keep(KeptTrial(kind=kind, trial=trial) for trial in trials)

    def claim_of(self, job_id: int) -> KeptJob | None:
        """What is known of a job from before the daemon started that has not come back yet."""
        return self._before.get(job_id)

    def take_back(self, job_id: int, asked: JobSpec) -> tuple[JobSpec, KeptJob | None]:
        """What a job that comes is to have, and what was known of it.

        What it had before the daemon started counts, whatever its processes ask for anew.
        """
        kept = self._before.pop(job_id, None)
        return (asked, None) if kept is None else (_spec_of(kept, asked), kept)

    def keep_job(self, job: Job, command: str) -> None:
        """This is what it is to have if it comes back."""
        now = (job.spec, job.paused)
        if self._jobs.get(job.job_id) == now:
            return
        self._jobs[job.job_id] = now
        spec: dict[str, object] = msgspec.to_builtins(job.spec)
        self._keep(
            [
                KeptJob(
                    job_id=job.job_id,
                    uid=job.uid,
                    spec=spec,
                    paused=job.paused,
                    command=command,
                )
            ]
        )

    def forget_job(self, job_id: int) -> None:
        """It has ended."""
        if self._jobs.pop(job_id, None) is not None:
            self._keep([GoneJob(job_id=job_id)])

    def close(self, timeout_s: float) -> None:
        """Wait for what is being written, for so long at most; the loop has ended."""
        self._worker.do(self._close)
        self._worker.finish(timeout_s)

    def _open(self, path: Path) -> None:
        try:
            self._journal = Journal(path, _boot())
            self._trials = self._journal.trials()
            self._before = self._journal.jobs()
        except (JournalError, sqlite3.Error) as error:
            _warn("the state file cannot be used, continuing without it", path, error)

    def _keep(self, notes: Iterable[Note]) -> None:
        if self._journal is not None:
            self._notes.extend(notes)
            self._worker.do(self._write)

    def _write(self) -> None:
        journal, notes = self._journal, []
        while self._notes:
            notes.append(self._notes.popleft())
        if journal is None or not notes:
            return  # an errand before this one took them
        try:
            journal.write(notes)
        except sqlite3.Error as error:
            self._journal = None
            _warn("the state file cannot be written, continuing without it", journal.path, error)

    def _close(self) -> None:
        journal, self._journal = self._journal, None
        if journal is not None:
            journal.close()


def _spec_of(kept: KeptJob, asked: JobSpec) -> JobSpec:
    """With all that was kept of it; what the version that wrote it did not know is as asked."""
    known = {field.name for field in fields(JobSpec)}
    told = {name: value for name, value in kept.spec.items() if name in known}
    try:
        return msgspec.convert(msgspec.to_builtins(asked) | told, JobSpec)
    except msgspec.ValidationError as error:
        log.warning("what a job had cannot be read, continuing as it asks", reason=str(error))
        return asked


def _boot() -> str:
    """Unlike that of any other start of the machine."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _warn(what: str, path: Path, error: Exception) -> None:
    log.warning(what, file=str(path), reason=str(error))
