"""What the daemon still knows after a restart; edges/journal.py keeps it in a file.

Belongs to the loop's thread. No caller waits for the disk: a thread of its own writes, batching all
that came meanwhile. A failed write is retried with the next change, because a file with outdated
facts is worse than none. Without a file the daemon starts as if for the first time.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import fields
from itertools import chain
from pathlib import Path
from typing import assert_never

import msgspec
import structlog

from tandem.errors import StateError
from tandemd.core.model import Job, JobSpec, Split
from tandemd.core.notices import notice_of
from tandemd.core.past import PastJob
from tandemd.core.spec_ranges import objection
from tandemd.core.turns.interference import Trial
from tandemd.edges.gpus import Gpu
from tandemd.edges.journal import (
    MOST_PAST,
    MOST_TRIALS,
    CorrectedPast,
    Drain,
    GoneJob,
    Journal,
    JournalError,
    KeptJob,
    KeptSplit,
    KeptTrial,
    Kind,
    Note,
    PastQuery,
    read_past,
)
from tandemd.edges.worker import Worker

MOST_LATE = 1024  # ended jobs that may queue up while the file cannot be written
FLUSH_S = 1.0  # for pending writes, before a read

log = structlog.get_logger(__name__)


class Remembered:
    """What was known before a restart, and what will be known after the next one."""

    def __init__(self, path: Path | None, *, at_once: bool, most_past: int = MOST_PAST) -> None:
        """`at_once`: the caller that has something to keep writes it itself (virtual clock).

        `most_past`: how many ended jobs to keep.
        """
        self._most_past = most_past
        self._journal: Journal | None = None
        self._worker = Worker("journal", at_once=at_once)
        self._notes: deque[Note] = deque()  # from the loop's thread to the worker's
        self._late = _Late()  # the worker's
        self._problem = ""  # at the last attempt; the worker sets it
        self._kinds: dict[int, Kind] = {}  # by GPU
        self._trials: dict[Kind, tuple[Trial, ...]] = {}
        self._drains: frozenset[str] = frozenset()  # UUIDs; replaced as a whole
        self._splits: dict[tuple[str, Kind], Split] = {}  # by UUID and kind
        self._before: dict[int, KeptJob] = {}  # jobs that have not come back yet
        self._jobs: dict[int, KeptJob] = {}  # as they were written
        if path is not None:
            self._open(path)

    @property
    def is_kept(self) -> bool:
        """Tell whether the file has all that a restart needs, or none is wanted. Any thread."""
        return not self._problem

    @property
    def problem(self) -> str:
        """Why the file does not have all that a restart needs; empty if it has. Any thread."""
        return self._problem

    def trials_on(self, gpus: Sequence[Gpu]) -> dict[int, Sequence[Trial]]:
        """Return earlier measurements by GPU, made on GPUs of its kind, oldest first."""
        self._kinds |= {gpu.index: gpu.kind for gpu in gpus}
        return {gpu.index: self._trials.get(gpu.kind, ()) for gpu in gpus}

    def keep_trials(self, gpu: int, trials: Iterable[Trial]) -> None:
        """Keep trials measured on this GPU; does nothing if its kind is not known."""
        if (kind := self._kinds.get(gpu)) is not None:
            self._keep(KeptTrial(kind=kind, trial=trial) for trial in trials)

    def split_of(self, gpu: Gpu) -> Split | None:
        """Return the split whose sets were proved disjoint since the machine booted.

        Any thread.
        """
        return self._splits.get((gpu.uuid_text, gpu.kind))

    def keep_split(self, gpu: Gpu, split: Split) -> None:
        """Keep a split that was proved for this GPU."""
        if self.split_of(gpu) != split:
            self._splits[gpu.uuid_text, gpu.kind] = split
            self._keep([KeptSplit(uuid=gpu.uuid_text, kind=gpu.kind, split=split)])

    def is_draining(self, gpu: Gpu) -> bool:
        """Tell whether new jobs are kept off this GPU. Any thread."""
        return gpu.uuid_text in self._drains

    def drain(self, gpu: Gpu, *, is_on: bool) -> None:
        """Keep new jobs off this GPU from now on, or admit them again."""
        uuid = frozenset({gpu.uuid_text})
        self._drains = self._drains | uuid if is_on else self._drains - uuid
        self._keep([Drain(uuid=gpu.uuid_text, is_on=is_on)])

    def claim_of(self, job_id: int) -> KeptJob | None:
        """Return what is known of a job from before the restart that has not come back yet."""
        return self._before.get(job_id)

    def take_back(self, job_id: int, asked: JobSpec) -> tuple[JobSpec, KeptJob | None]:
        """Return the spec for a job that comes, and what was known of it.

        The spec that it had before the restart counts, whatever its processes ask for anew.
        """
        kept = self._before.pop(job_id, None)
        return (asked, None) if kept is None else (_spec_of(kept, asked), kept)

    def keep_job(self, job: Job, command: str) -> None:
        """Keep what the job gets if it comes back after a restart."""
        now = KeptJob(
            job_id=job.job_id,
            uid=job.uid,
            spec=msgspec.to_builtins(job.spec),
            paused=job.paused or job.notice is not None,
            command=command,
            cancel=job.cancel,
            notice=notice_of(job),
        )
        if self._jobs.get(job.job_id) != now:
            self._jobs[job.job_id] = now
            self._keep([now])

    def forget_job(self, job_id: int) -> None:
        """Forget a job that has ended."""
        if self._jobs.pop(job_id, None) is not None:
            self._keep([GoneJob(job_id=job_id)])

    def keep_past(self, job: PastJob) -> None:
        """Keep a job that has ended for later queries."""
        if self._most_past:
            self._keep([job])

    def correct_past(self, kept: PastJob, now: PastJob) -> None:
        """Complete an ended job's row; does nothing if the row is gone."""
        if self._most_past:
            self._keep([CorrectedPast(kept=kept, now=now)])

    def keep_most_past(self, most: int) -> None:
        """Keep this many ended jobs from now on.

        Rows beyond a lower number are deleted only at the next start: a slip in the configuration
        that is mended before then costs nothing.
        """
        self._most_past = most
        if self._journal is not None:
            self._journal.most_past = max(most, self._journal.most_past)

    def past(self, query: PastQuery) -> list[tuple[int, PastJob]]:
        """Return ended jobs with their numbers, newest first. Any thread but the loop's.

        Raises:
            StateError: none are kept, or the file cannot be read.
        """
        if not self._most_past:
            raise StateError(
                "this daemon keeps no history, because daemon.history is 0; set it to the number "
                "of jobs to keep",
                reason="NO_HISTORY",
            )
        journal = self._journal
        if journal is None:
            raise StateError(
                "this daemon keeps no history, because it has no state file; see daemon.state, "
                "and its log",
                reason="NO_HISTORY",
            )
        self._worker.finish(FLUSH_S)
        try:
            return read_past(journal.path, query)
        except sqlite3.Error as error:
            raise StateError(f"the state file {journal.path} cannot be read: {error}") from error

    def close(self, timeout_s: float) -> None:
        """Wait for pending writes, at most that long; the loop has ended."""
        self._worker.do(self._close)
        self._worker.finish(timeout_s)

    def _open(self, path: Path) -> None:
        try:
            self._journal = Journal(path, _boot(), self._most_past)
            self._trials = self._journal.trials()
            self._before = self._journal.jobs()
            self._splits = self._journal.splits()
            self._drains = frozenset(self._journal.drains())
        except (JournalError, sqlite3.Error) as error:
            self._problem = f"the state file {path} cannot be used: {error}"
            _warn("the state file cannot be used, continuing without it", path, error)

    def _keep(self, notes: Iterable[Note]) -> None:
        if self._journal is not None:
            self._notes.extend(notes)
            self._worker.do(self._write)

    def _write(self) -> None:
        while self._notes:
            self._late.take(self._notes.popleft())
        notes = self._late.notes()
        if self._journal is None or not notes:
            return  # an earlier errand has written them
        try:
            self._journal.write(notes)
        except sqlite3.Error as error:
            path = self._journal.path
            if not self._problem:
                _warn(
                    "the state file cannot be written, trying again with each change", path, error
                )
            self._problem = f"the state file {path} cannot be written: {error}"
        else:
            if self._problem:
                log.info("the state file can be written again", file=str(self._journal.path))
            self._problem = ""
            self._late = _Late()

    def _close(self) -> None:
        self._write()
        journal, self._journal = self._journal, None
        if journal is not None:
            journal.close()


class _Late:
    """Notes not in the file yet: of each job and GPU only the newest."""

    def __init__(self) -> None:
        self._trials: deque[KeptTrial] = deque(maxlen=MOST_TRIALS)
        self._jobs: dict[int, KeptJob | GoneJob] = {}
        self._splits: dict[str, KeptSplit] = {}
        self._past: deque[PastJob | CorrectedPast] = deque(maxlen=MOST_LATE)
        self._drains: dict[str, Drain] = {}

    def take(self, note: Note) -> None:
        match note:
            case KeptTrial():
                self._trials.append(note)
            case KeptJob(job_id=job_id) | GoneJob(job_id=job_id):
                self._jobs[job_id] = note
            case KeptSplit(uuid=uuid):
                self._splits[uuid] = note
            case PastJob() | CorrectedPast():
                self._past.append(note)
            case Drain(uuid=uuid):
                self._drains[uuid] = note
            case _:
                assert_never(note)

    def notes(self) -> list[Note]:
        newest = (self._jobs, self._splits, self._drains)
        return [*self._trials, *self._past, *chain.from_iterable(kept.values() for kept in newest)]


def _spec_of(kept: KeptJob, asked: JobSpec) -> JobSpec:
    """Overlay the kept spec on the asked one; fields that its writer did not know stay as asked."""
    known = {field.name for field in fields(JobSpec)}
    told = {name: value for name, value in kept.spec.items() if name in known}
    try:
        spec = msgspec.convert(msgspec.to_builtins(asked) | told, JobSpec)
        why_not = objection(spec)
    except msgspec.ValidationError as error:
        why_not = str(error)
    if why_not:
        log.warning(
            "cannot read what a job was granted, continuing with what it asks for", reason=why_not
        )
        return asked
    return spec


def _boot() -> str:
    """Return an id that differs for each boot of the machine."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _warn(what: str, path: Path, error: Exception) -> None:
    log.warning(what, file=str(path), reason=str(error))
