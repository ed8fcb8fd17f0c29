"""The state file: what outlives the daemon, in SQLite.

It keeps facts, never what was computed from them, because another version of the daemon may compute
something else from the same measurements. Each fact is a JSON value beside the columns that it is
looked up by, so that adding or removing a field needs no new schema. What cannot be read is left
out, not repaired.

`PRAGMA user_version` counts the steps of MIGRATIONS that a file has been through. A released step
is never changed; a newer schema is one more step.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

import msgspec

from tandemd.core.model import Cancel, Notice, Split
from tandemd.core.past import PastJob
from tandemd.core.sums import MOST
from tandemd.core.turns.interference import Trial

APPLICATION_ID = 0x54414E44  # "TAND": marks the file as ours (SQLite's `PRAGMA application_id`)
_ID_AT, _ID_BYTES = 68, 4  # in the header of the file (sqlite.org/fileformat.html)
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
BUSY_S = 1.0  # how long to wait for another daemon that is writing
MOST_TRIALS = 1024  # for each kind of GPU; older ones weigh less than a hundredth of the newest
MOST_KINDS = 16  # of GPUs; those with the newest trials are kept
MOST_JOBS = 8192  # the youngest are kept
MOST_PAST = 10_000  # ended jobs to keep by default, the newest

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE trials (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            gpu TEXT NOT NULL,
            driver TEXT NOT NULL,
            trial TEXT NOT NULL
        )""",
        "CREATE INDEX trials_by_gpu ON trials (gpu, driver, id)",
    ),
    (
        """CREATE TABLE jobs (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            job_id INTEGER NOT NULL UNIQUE,
            uid INTEGER NOT NULL,
            boot TEXT NOT NULL,
            job TEXT NOT NULL
        )""",
    ),
    (
        """CREATE TABLE splits (
            uuid TEXT PRIMARY KEY,
            gpu TEXT NOT NULL,
            driver TEXT NOT NULL,
            boot TEXT NOT NULL,
            split TEXT NOT NULL
        )""",
    ),
    (
        """CREATE TABLE past (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            uid INTEGER NOT NULL,
            user TEXT NOT NULL,
            job_group TEXT NOT NULL,
            ended_ns INTEGER NOT NULL,
            job TEXT NOT NULL
        )""",
    ),
    ("CREATE TABLE drains (uuid TEXT PRIMARY KEY)",),
)

Kind = tuple[str, str]  # of GPU: its product name, and the version of its driver


class JournalError(Exception):
    """The file cannot be used; the text says why, and what to do about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptTrial:
    """A measurement made on a kind of GPU."""

    kind: Kind
    trial: Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptJob:
    """What a living job had been granted."""

    job_id: int
    uid: int
    spec: Mapping[str, object]  # fields of its JobSpec, as this or another version knows them
    paused: bool
    command: str
    cancel: Cancel | None = None  # set while it is being cancelled
    notice: Notice | None = None  # of its pause, to programs that listen


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSplit:
    """A GPU whose sets of SMs, split like this, were proved to be disjoint."""

    uuid: str  # in NVML's form
    kind: Kind
    split: Split


@dataclass(frozen=True, slots=True, kw_only=True)
class GoneJob:
    """A job has ended."""

    job_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """Whether new jobs are kept off a GPU."""

    uuid: str  # in NVML's form
    is_on: bool  # they are


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectedPast:
    """More has become known about a job that has ended."""

    kept: PastJob  # as it was written
    now: PastJob


Note = KeptTrial | KeptJob | GoneJob | KeptSplit | PastJob | CorrectedPast | Drain


@dataclass(frozen=True, slots=True, kw_only=True)
class PastQuery:
    """Selects ended jobs; fields that are None or empty do not restrict."""

    uid: int | None = None
    user: str = ""  # a name, or a uid as a number
    group: str = ""
    since_ns: int = 0  # Unix time; it ended then or later
    until_ns: int = MOST  # and before that
    before_id: int = MOST  # of their rows
    most: int = 1000  # the newest of them


class _JobText(msgspec.Struct):
    """The contents of a job's last column."""

    spec: dict[str, object]
    paused: bool = False
    command: str = ""
    cancel: Cancel | None = None
    notice: Notice | None = None


class Journal:
    """One file. For one thread at a time; several daemons may share the file."""

    def __init__(self, path: Path, boot: str = "", most_past: int = MOST_PAST) -> None:
        """Open the file, creating it (0600) if missing, and bring its schema up to date.

        `boot` identifies the present boot of the machine, before which no living job began.
        `most_past` is the number of ended jobs to keep.

        Raises:
            JournalError: it cannot be made, read or written, is broken, or is not for this version.
        """
        self.path = path
        self.most_past = most_past
        self._boot = boot
        try:
            _make(path)
            self._database = sqlite3.connect(
                path, timeout=BUSY_S, isolation_level=None, check_same_thread=False
            )
            try:
                _open(self._database)
                with _unless_full():
                    self._drop_old()
            except BaseException:
                self._database.close()
                raise
        except OSError as error:
            raise JournalError(
                f"{error.strerror or error}; make its directory writable, or name another file in "
                "daemon.state"
            ) from error
        except sqlite3.DatabaseError as error:
            raise JournalError(f"{error}; {_remedy(error)}") from error

    def trials(self) -> dict[Kind, tuple[Trial, ...]]:
        """Return the measurements for each kind of GPU, oldest first.

        Raises:
            sqlite3.Error: the file cannot be read.
        """
        decoder = msgspec.json.Decoder(Trial)
        found: dict[Kind, list[Trial]] = {}
        rows = self._database.execute("SELECT gpu, driver, trial FROM trials ORDER BY id")
        for gpu, driver, text in rows:
            try:
                trial = decoder.decode(text)
            except msgspec.DecodeError:
                continue  # written by another version, for instance
            found.setdefault((gpu, driver), []).append(trial)
        return {kind: tuple(trials) for kind, trials in found.items()}

    def jobs(self) -> dict[int, KeptJob]:
        """Return by number the jobs that were alive when a daemon last recorded them.

        Raises:
            sqlite3.Error: the file cannot be read.
        """
        decoder = msgspec.json.Decoder(_JobText)
        found: dict[int, KeptJob] = {}
        rows = self._database.execute(
            "SELECT job_id, uid, job FROM jobs WHERE boot = ?", (self._boot,)
        )
        for job_id, uid, text in rows:
            try:
                job = decoder.decode(text)
            except msgspec.DecodeError:
                continue
            found[job_id] = KeptJob(
                job_id=job_id,
                uid=uid,
                spec=job.spec,
                paused=job.paused,
                command=job.command,
                cancel=job.cancel,
                notice=job.notice,
            )
        return found

    def splits(self) -> dict[tuple[str, Kind], Split]:
        """Return, by UUID and kind of GPU, the splits proved since the machine was started.

        Raises:
            sqlite3.Error: the file cannot be read.
        """
        decoder = msgspec.json.Decoder(Split)
        found: dict[tuple[str, Kind], Split] = {}
        if not self._boot:
            return found  # nobody knows when the machine was started
        rows = self._database.execute("SELECT uuid, gpu, driver, split FROM splits")
        for uuid, gpu, driver, text in rows:
            try:
                found[uuid, (gpu, driver)] = decoder.decode(text)
            except msgspec.DecodeError:
                continue
        return found

    def drains(self) -> set[str]:
        """Return the UUIDs of GPUs on which no job is started.

        Raises:
            sqlite3.Error: the file cannot be read.
        """
        return {uuid for (uuid,) in self._database.execute("SELECT uuid FROM drains")}

    def write(self, notes: Iterable[Note]) -> None:
        """Write all of these notes, or none.

        Raises:
            sqlite3.Error: the file cannot be written.
        """
        with _whole(self._database):
            kinds: set[Kind] = set()
            for note in notes:
                self._take(note)
                if isinstance(note, KeptTrial):
                    kinds.add(note.kind)
            for kind in kinds:
                self._drop_beyond(kind)
            self._drop_past()

    def close(self) -> None:
        """Close the file; no other method may be called after that."""
        self._database.close()

    def _take(self, note: Note) -> None:
        match note:
            case KeptTrial():
                self._insert(note)
            case KeptJob():
                self._replace(note)
            case KeptSplit(uuid=uuid, kind=kind, split=split):
                self._database.execute(
                    "INSERT OR REPLACE INTO splits VALUES (?, ?, ?, ?, ?)",
                    (uuid, *kind, self._boot, msgspec.json.encode(split).decode()),
                )
            case GoneJob(job_id=job_id):
                self._database.execute("DELETE FROM jobs WHERE job_id = ?", (job_id,))
            case PastJob() | CorrectedPast():
                self._take_past(note)
            case Drain():
                self._set_drain(note)
            case _:
                assert_never(note)

    def _insert(self, note: KeptTrial) -> None:
        row = (*note.kind, msgspec.json.encode(note.trial).decode())
        self._database.execute("INSERT INTO trials (gpu, driver, trial) VALUES (?, ?, ?)", row)

    def _set_drain(self, drain: Drain) -> None:
        words = "INSERT OR IGNORE INTO drains VALUES (?)"
        if not drain.is_on:
            words = "DELETE FROM drains WHERE uuid = ?"
        self._database.execute(words, (drain.uuid,))

    def _take_past(self, note: PastJob | CorrectedPast) -> None:
        if isinstance(note, PastJob):
            self._append(note)
            return
        now, kept = (msgspec.json.encode(job).decode() for job in (note.now, note.kept))
        self._database.execute(  # a number may have several rows, so match the whole row as written
            "UPDATE past SET job = ? WHERE ended_ns = ? AND job = ?",
            (now, note.kept.ended_wall_ns, kept),
        )

    def _append(self, job: PastJob) -> None:
        text = msgspec.json.encode(job).decode()
        self._database.execute(
            "INSERT INTO past (uid, user, job_group, ended_ns, job) VALUES (?, ?, ?, ?, ?)",
            (job.uid, job.user, job.group, job.ended_wall_ns, text),
        )

    def _drop_past(self) -> None:
        # Counted from the newest id ever assigned: rows go in the order in which they came.
        newest = "SELECT seq FROM sqlite_sequence WHERE name = 'past'"
        self._database.execute(f"DELETE FROM past WHERE id <= ({newest}) - ?", (self.most_past,))

    def _replace(self, job: KeptJob) -> None:
        kept = _JobText(
            spec=dict(job.spec),
            paused=job.paused,
            command=job.command,
            cancel=job.cancel,
            notice=job.notice,
        )
        text = msgspec.json.encode(kept).decode()
        self._database.execute(
            "INSERT INTO jobs (job_id, uid, boot, job) VALUES (?, ?, ?, ?) ON CONFLICT (job_id) "
            "DO UPDATE SET uid = excluded.uid, boot = excluded.boot, job = excluded.job",
            (job.job_id, job.uid, self._boot, text),
        )

    def _drop_beyond(self, kind: Kind) -> None:
        newest = "SELECT id FROM trials WHERE gpu = ? AND driver = ? ORDER BY id DESC LIMIT ?"
        self._database.execute(
            f"DELETE FROM trials WHERE gpu = ? AND driver = ? AND id NOT IN ({newest})",
            (*kind, *kind, MOST_TRIALS),
        )

    def _drop_old(self) -> None:
        newest = "SELECT gpu, driver FROM trials GROUP BY gpu, driver ORDER BY max(id) DESC LIMIT ?"
        self._database.execute(
            f"DELETE FROM trials WHERE (gpu, driver) NOT IN ({newest})", (MOST_KINDS,)
        )
        self._database.execute("DELETE FROM splits WHERE boot != ?", (self._boot,))
        self._drop_past()
        # Jobs may end while no daemon is there to see it.
        newest = "SELECT id FROM jobs WHERE boot = ? ORDER BY id DESC LIMIT ?"
        self._database.execute(
            f"DELETE FROM jobs WHERE id NOT IN ({newest})", (self._boot, MOST_JOBS)
        )


def read_past(path: Path, query: PastQuery) -> list[tuple[int, PastJob]]:
    """Return ended jobs with their row numbers, newest first.

    Any thread: the function opens a connection of its own, and neither waits for a writer nor
    blocks one.

    Raises:
        sqlite3.Error: the file cannot be read.
    """
    words = ["id < ?", "ended_ns >= ?", "ended_ns < ?"]
    wanted: list[object] = [query.before_id, query.since_ns, query.until_ns]
    if query.uid is not None:
        words.append("uid = ?")
        wanted.append(query.uid)
    if query.user:
        words.append("? IN (user, CAST(uid AS TEXT))")
        wanted.append(query.user)
    if query.group:
        words.append("job_group = ?")
        wanted.append(query.group)
    decoder = msgspec.json.Decoder(PastJob)
    found: list[tuple[int, PastJob]] = []
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=BUSY_S)) as database:
        rows = database.execute(
            f"SELECT id, job FROM past WHERE {' AND '.join(words)} ORDER BY id DESC LIMIT ?",
            (*wanted, query.most),
        )
        for number, text in rows:
            with suppress(msgspec.DecodeError):  # written by another version, for instance
                found.append((number, decoder.decode(text)))
    return found


def _make(path: Path) -> None:
    """Make sure that the file exists and that nobody else can read or replace it."""
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError:  # more than the last directory is missing: probably a typing error
        raise JournalError(
            f"there is no directory '{path.parent.parent}'; correct daemon.state, or create it"
        ) from None
    folder = path.parent.stat()
    if folder.st_uid not in (0, os.geteuid()) or folder.st_mode & OTHERS_WRITE:
        raise JournalError(  # they could put a WAL beside it, which SQLite would replay
            f"others may write to its directory (uid {folder.st_uid}, mode "
            f"{stat.S_IMODE(folder.st_mode):04o}); `chmod go-w` it, or name a file in a directory "
            "of your own in daemon.state"
        )
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    fd = os.open(path, flags, 0o600)
    try:
        facts = os.fstat(fd)
        if not stat.S_ISREG(facts.st_mode):
            raise JournalError("it is not a regular file; name another in daemon.state")
        if facts.st_uid != os.geteuid():
            raise JournalError(
                f"it belongs to uid {facts.st_uid}, not to uid {os.geteuid()}; "
                "name another in daemon.state"
            )
        if _is_ours(os.read(fd, _ID_AT + _ID_BYTES)):
            os.fchmod(fd, 0o600)  # SQLite creates its companion files with the same mode
    finally:
        os.close(fd)


def _is_ours(header: bytes) -> bool:
    """Tell whether the file is new or was made by a daemon; any other is left alone."""
    return not header or header[_ID_AT:] == APPLICATION_ID.to_bytes(_ID_BYTES)


def _open(database: sqlite3.Connection) -> None:
    """Check whose file it is before anything in it is touched."""
    if (problem := _pragma(database, "quick_check(1)")) != "ok":
        raise sqlite3.DatabaseError(str(problem))
    version, is_new = _version(database), _pragma(database, "page_count") == 0
    if not is_new and _pragma(database, "application_id") != APPLICATION_ID:
        raise JournalError("it is the database of another program; name another in daemon.state")
    if version > len(MIGRATIONS):
        raise JournalError(
            f"a newer tandemd has written it (schema {version}, this one knows {len(MIGRATIONS)}); "
            "start that one, or name another file in daemon.state"
        )
    # WAL: readers and a writer do not block each other, and only the log as a whole is synced. A
    # machine that crashes may lose the newest notes, and nothing else (sqlite.org/wal.html).
    _pragma(database, "journal_mode=WAL")
    _pragma(database, "synchronous=NORMAL")
    if version == len(MIGRATIONS):
        return  # write nothing, so that a file on a full disk can still be read
    with _whole(database):
        # Read again: another daemon may have been faster.
        for step in MIGRATIONS[_version(database) :]:
            for statement in step:
                database.execute(statement)
        _pragma(database, f"application_id={APPLICATION_ID}")
        _pragma(database, f"user_version={len(MIGRATIONS)}")


def _remedy(error: sqlite3.DatabaseError) -> str:
    """Suggest what to do, by SQLite's primary error code (sqlite.org/rescode.html)."""
    match getattr(error, "sqlite_errorcode", 0) & 0xFF:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return (
                f"another process held it for longer than {BUSY_S:g} s (`fuser` tells which); "
                "end that one, and restart tandemd"
            )
        case sqlite3.SQLITE_FULL | sqlite3.SQLITE_IOERR:
            return "see whether its disk is full or broken, and restart tandemd"
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return "make it and its directory writable, or name another file in daemon.state"
        case _:
            return "if it is damaged, move it away, and tandemd creates a new one"


def _pragma(database: sqlite3.Connection, words: str) -> object:
    row = database.execute(f"PRAGMA {words}").fetchone()
    return None if row is None else row[0]


def _version(database: sqlite3.Connection) -> int:
    version = _pragma(database, "user_version")
    assert isinstance(version, int)
    return version


@contextmanager
def _unless_full() -> Iterator[None]:
    """Tolerate a full disk: old rows stay if deleting them needs space; the next start retries."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_FULL:
            raise


@contextmanager
def _whole(database: sqlite3.Connection) -> Iterator[None]:
    """Run a transaction: all or nothing, and nobody else writes meanwhile."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    finally:
        if database.in_transaction:  # after some errors SQLite has rolled back already
            database.execute("ROLLBACK")
