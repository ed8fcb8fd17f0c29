"""The state file: what is restored from it, and what happens to one that is unusable."""

import os
import re
import socket
import sqlite3
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tandemd import remembered, state_file
from tandemd.core.model import Split
from tandemd.core.turns.interference import Features, Neighbour, Trial
from tandemd.edges import journal
from tandemd.edges.gpus import Gpu
from tandemd.edges.journal import APPLICATION_ID, MIGRATIONS, Journal, JournalError, KeptTrial
from tandemd.remembered import Remembered

CARD, OTHER = ("NVIDIA H200", "580.65"), ("NVIDIA H200", "590.10")
GPU = Gpu(index=3, uuid=bytes(16), product_name=CARD[0], driver=CARD[1])


def trial(factor, **others):
    beside = tuple(Neighbour(Features(memory=each), part=0.5) for each in others.values())
    return Trial(own=Neighbour(Features(sm=0.1 + 0.2)), others=beside, factor=factor)


def kept(factor, kind=CARD):
    return KeptTrial(kind=kind, trial=trial(factor, one=0.3))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "tandem" / "state.db"


@pytest.fixture
def file(path):
    """A state file that the test may fill."""
    Journal(path).close()
    return sqlite3.connect(path, isolation_level=None)


def warned(path):
    """Return the reason in the daemon's only warning of such a file; it goes on without it."""
    with capture_logs() as logs:
        found = Remembered(path, at_once=True)
        assert found.trials_on([GPU]) == {3: ()}
        found.keep_trials(3, [trial(1.5, one=0.3)])
        found.close(1)
    assert not found.is_kept
    (line,) = logs
    assert line["log_level"] == "warning"
    assert line["event"].endswith("continuing without it")
    assert line["file"] == str(path)
    return line["reason"]


def test_what_was_kept_comes_back_by_kind_of_gpu_as_it_was(path):
    before = Remembered(path, at_once=True)
    before.trials_on([GPU])
    trials = [trial(1.7, one=0.3), trial(2.5, one=0.3, other=1 / 3)]
    before.keep_trials(3, trials)
    before.keep_trials(9, trials)  # of an unknown kind
    before.close(1)

    after = Remembered(path, at_once=True)

    another = Gpu(index=0, uuid=bytes(16), product_name=OTHER[0], driver=OTHER[1])
    assert after.trials_on([GPU, another]) == {3: tuple(trials), 0: ()}


def test_a_proof_comes_back_for_the_same_gpu_and_driver_until_the_machine_is_started(
    path, monkeypatch
):
    split = Split(groups=16, group_sms=8)
    before = Remembered(path, at_once=True)
    before.keep_split(GPU, Split(groups=8, group_sms=16))
    before.keep_split(GPU, split)
    before.close(1)

    def found(gpu):
        return Remembered(path, at_once=True).split_of(gpu)

    assert found(GPU) == split
    assert found(replace(GPU, index=0)) == split
    assert found(replace(GPU, uuid=bytes([1] * 16))) is None
    assert found(replace(GPU, driver=OTHER[1])) is None
    monkeypatch.setattr(remembered, "_boot", lambda: "another")
    assert found(GPU) is None


def test_of_a_machine_that_does_not_say_when_it_was_started_no_proof_comes_back(path, monkeypatch):
    monkeypatch.setattr(remembered, "_boot", lambda: "")
    Remembered(path, at_once=True).keep_split(GPU, Split(groups=16, group_sms=8))

    assert Remembered(path, at_once=True).split_of(GPU) is None


def test_only_the_newest_of_a_kind_are_kept(path, monkeypatch):
    monkeypatch.setattr(journal, "MOST_TRIALS", 3)
    book = Journal(path)
    book.write([kept(9, OTHER)])

    book.write([kept(factor) for factor in range(1, 6)])

    found = {kind: [t.factor for t in trials] for kind, trials in book.trials().items()}
    assert found == {OTHER: [9], CARD: [3, 4, 5]}


def test_only_kinds_with_the_newest_trials_are_kept(path, monkeypatch):
    monkeypatch.setattr(journal, "MOST_KINDS", 2)
    book = Journal(path)
    for driver in "abca":
        book.write([kept(1, ("gpu", driver))])
    book.close()

    assert Journal(path).trials().keys() == {("gpu", "a"), ("gpu", "c")}


def test_it_is_nobody_elses_business(path):
    path.parent.mkdir()
    path.touch(mode=0o666)
    path.chmod(0o666)
    book = Journal(path)
    book.write([kept(1)])

    modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    assert modes == {"state.db": 0o600, "state.db-wal": 0o600, "state.db-shm": 0o600}
    book.close()
    assert [each.name for each in path.parent.iterdir()] == ["state.db"]


def test_notes_that_come_together_are_written_together_or_not_at_all(path):
    book = Journal(path)

    with pytest.raises(sqlite3.Error):
        book.write([kept(1), KeptTrial(kind=(None, ""), trial=trial(1))])

    assert book.trials() == {}


@pytest.mark.parametrize("undoes", ["ABORT", "ROLLBACK"])  # the statement, or all before it too
def test_after_an_error_it_is_written_again(path, file, undoes):
    book = Journal(path)
    file.execute(
        f"CREATE TRIGGER no BEFORE INSERT ON trials BEGIN SELECT RAISE({undoes}, 'no'); END"
    )
    with pytest.raises(sqlite3.IntegrityError, match="no"):
        book.write([kept(1)])
    file.execute("DROP TRIGGER no")

    book.write([kept(2)])

    assert book.trials() == {CARD: (trial(2, one=0.3),)}


def test_what_cannot_be_committed_does_not_stay_half_done(path, file):
    book = Journal(path)
    for words in (
        "PRAGMA foreign_keys=ON",
        "CREATE TABLE gpus (name TEXT PRIMARY KEY)",
        "CREATE TABLE late (name REFERENCES gpus DEFERRABLE INITIALLY DEFERRED)",
        "CREATE TRIGGER no AFTER INSERT ON trials BEGIN INSERT INTO late VALUES ('x'); END",
    ):
        file.execute(words)
    book._database.execute("PRAGMA foreign_keys=ON")
    with pytest.raises(sqlite3.IntegrityError):
        book.write([kept(1)])
    file.execute("DROP TRIGGER no")

    book.write([kept(2)])

    assert book.trials() == {CARD: (trial(2, one=0.3),)}


def test_a_row_that_cannot_be_read_is_left_out(path, file):
    for text in ("{", "[]", '{"factor": "two"}', "null"):
        file.execute("INSERT INTO trials (gpu, driver, trial) VALUES (?, ?, ?)", (*CARD, text))
    book = Journal(path)
    book.write([kept(2)])

    assert book.trials() == {CARD: (trial(2, one=0.3),)}


def test_a_broken_file_is_told_once_and_left_alone(path):
    path.parent.mkdir()
    path.write_bytes(b"no database at all" * 100)

    assert "move it away" in warned(path)
    assert path.read_bytes().startswith(b"no database")


def test_a_file_that_is_cut_short_is_told(path, file):
    rows = [("", "", "x" * 99)] * 200
    file.executemany("INSERT INTO trials (gpu, driver, trial) VALUES (?, ?, ?)", rows)
    file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    file.close()
    path.write_bytes(path.read_bytes()[:-8192])

    assert "move it away" in warned(path)


def test_a_newer_file_is_told_and_not_touched(path, file):
    file.execute(f"PRAGMA user_version={len(MIGRATIONS) + 1}")

    assert "a newer tandemd has written it" in warned(path)
    assert file.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS) + 1,)


def test_the_database_of_another_program_is_told_and_not_touched(path):
    path.parent.mkdir()
    theirs = sqlite3.connect(path)
    theirs.execute("CREATE TABLE trials (theirs)")
    theirs.commit()

    assert "another program" in warned(path)
    assert theirs.execute("PRAGMA application_id").fetchone() != (APPLICATION_ID,)


def test_a_file_that_is_no_database_stays_readable_to_whom_it_was(path):
    path.parent.mkdir()
    path.write_text("root:x:0:0:root:/root:/bin/sh\n")
    path.chmod(0o644)

    assert "not a database" in warned(path)
    assert (stat.S_IMODE(path.stat().st_mode), path.read_text()[:5]) == (0o644, "root:")


def test_a_copy_that_was_put_back_is_nobody_elses_business_either(path):
    Journal(path).close()
    path.chmod(0o644)

    Journal(path).close()

    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_place_where_nothing_can_be_made_is_told(path):
    path.parent.touch()

    assert "name another file in daemon.state" in warned(path)


def test_a_file_that_another_process_holds_is_not_called_broken(path, file, monkeypatch):
    monkeypatch.setattr(journal, "BUSY_S", 0)
    file.execute("BEGIN EXCLUSIVE")

    told = warned(path)

    assert "another process" in told
    assert "move it away" not in told


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (sqlite3.SQLITE_BUSY_SNAPSHOT, "another process"),
        (sqlite3.SQLITE_FULL, "disk is full"),
        (sqlite3.SQLITE_IOERR_WRITE, "disk is full"),
        (sqlite3.SQLITE_READONLY_DIRECTORY, "writable"),
        (sqlite3.SQLITE_CANTOPEN, "writable"),
        (sqlite3.SQLITE_CORRUPT, "move it away"),
        (sqlite3.SQLITE_NOTADB, "move it away"),
    ],
)
def test_it_is_said_what_to_do(path, monkeypatch, code, remedy):
    error = sqlite3.DatabaseError("words of SQLite's")
    error.sqlite_errorcode = code

    def fails(_):
        raise error

    monkeypatch.setattr(journal, "_open", fails)

    told = warned(path)

    assert told.startswith("words of SQLite's; ")
    assert remedy in told


@pytest.mark.parametrize("code", [sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY])
def test_what_is_on_a_full_disk_is_read_all_the_same(path, monkeypatch, code):
    before = Journal(path)
    before.write([kept(1.5)])
    before.close()
    error = sqlite3.OperationalError("words of SQLite's")
    error.sqlite_errorcode = code

    def fails(_):
        raise error

    monkeypatch.setattr(Journal, "_drop_old", fails)

    if code == sqlite3.SQLITE_FULL:
        after = Journal(path)
        assert after.trials() == {CARD: (trial(1.5, one=0.3),)}
        after.write([kept(2.5)])  # there is room again
        after.close()
    else:
        with pytest.raises(JournalError, match="writable"):
            Journal(path)


def test_a_file_of_this_version_is_opened_without_a_write(path, file):
    changes = file.execute("PRAGMA data_version").fetchone()

    Journal(path).close()

    assert file.execute("PRAGMA data_version").fetchone() == changes


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770])
def test_a_place_where_others_may_put_files_beside_it_is_refused(path, mode):
    path.parent.mkdir()
    path.parent.chmod(mode)

    assert "others may write to its directory" in warned(path)
    assert not path.exists()


def test_a_place_that_is_mistyped_is_told_and_nothing_is_made_there(path):
    mistyped = path.parent / "mistyped" / path.name

    assert f"there is no directory '{path.parent}'; correct daemon.state" in warned(mistyped)
    assert not path.parent.exists()


def test_of_the_usual_place_all_that_a_home_lacks_is_made(tmp_path):
    said = {"uid": 1000, "own_runtime_dir": None, "machine": "m"}
    path = state_file.state_path("auto", {"HOME": str(tmp_path)}, **said)

    state_file.make_usual_place("auto", path)
    state_file.make_usual_place(str(tmp_path / "a/b/c"), tmp_path / "a/b/c")

    Journal(path).close()
    assert path == tmp_path / ".local/state/tandem/state-m.db"
    assert not (tmp_path / "a").exists()


def test_what_is_no_file_is_told(path):
    path.mkdir(parents=True)
    assert "name another" in warned(path)

    link = path.with_name("link")
    link.symlink_to(path)
    assert "name another" in warned(link)

    pipe = path.with_name("pipe")
    os.mkfifo(pipe)
    assert "it is not a regular file; name another" in warned(pipe)


def test_a_file_that_cannot_be_written_any_more_is_told_once(path, file):
    remembered = Remembered(path, at_once=True)
    remembered.trials_on([GPU])
    file.execute("DROP TABLE trials")

    with capture_logs() as logs:
        remembered.keep_trials(3, [trial(1, one=0.5)])
        remembered.keep_trials(3, [trial(1, one=0.5)])

    assert [line["event"] for line in logs] == [
        "the state file cannot be written, trying again with each change"
    ]


def test_it_is_written_by_a_thread_of_its_own(path):
    remembered = Remembered(path, at_once=False)
    remembered.trials_on([GPU])
    for factor in range(1, 51):
        remembered.keep_trials(3, [trial(factor)])
    remembered.close(30)

    assert [each.factor for each in Journal(path).trials()[CARD]] == list(range(1, 51))


def test_two_daemons_may_have_the_same_file(path):
    books = [Journal(path), Journal(path)]
    for book in books * 2:
        book.write([kept(1)])

    assert len(books[0].trials()[CARD]) == 4


def test_a_daemon_without_a_file_keeps_nothing():
    remembered = Remembered(None, at_once=True)
    remembered.keep_trials(3, [trial(1)])
    remembered.close(1)

    assert remembered.trials_on([GPU]) == {3: ()}
    assert remembered.is_kept  # none was asked for


@pytest.mark.parametrize(
    ("said", "environ", "uid", "own", "wanted"),
    [
        ("none", {"STATE_DIRECTORY": "/s"}, 0, None, None),
        ("/x/y", {"STATE_DIRECTORY": "/s"}, 0, "/own", "/x/y"),
        ("auto", {"STATE_DIRECTORY": "/s:/t", "HOME": "/h"}, 7, "/own", "/s/state-m.db"),
        ("auto", {"STATE_DIRECTORY": "/s:/t", "HOME": "/root"}, 0, "/own", "/s/state.db"),
        ("auto", {"HOME": "/h"}, 0, "/own", "/own/state.db"),
        ("auto", {"HOME": "/root"}, 0, None, "/var/lib/tandem/state.db"),
        ("auto", {"HOME": "/h"}, 7, None, "/h/.local/state/tandem/state-m.db"),
        ("auto", {"HOME": "/h", "XDG_STATE_HOME": "/x"}, 7, None, "/x/tandem/state-m.db"),
        ("auto", {}, 7, None, None),
    ],
)
def test_where_it_is(said, environ, uid, own, wanted):
    own_dir = Path(own) if own else None

    found = state_file.state_path(said, environ, uid=uid, own_runtime_dir=own_dir, machine="m")

    assert found == (Path(wanted) if wanted else None)


def test_machines_have_names_of_their_own_that_do_not_tell_their_ids(tmp_path):
    names = []
    for machine_id in ("0123456789abcdef" * 2, "0123456789abcdee" * 2):
        (tmp_path / "id").write_text(f"{machine_id}\n")
        names.append(state_file.machine_name(tmp_path / "id"))
        assert state_file.machine_name(tmp_path / "id") == names[-1]
        assert names[-1] not in machine_id

    assert names[0] != names[1]
    assert all(re.fullmatch("[0-9a-f]{16}", name) for name in names)


@pytest.mark.parametrize("said", [b"", b"uninitialized\n", b"\xff", None])
def test_a_machine_without_an_id_is_called_as_its_host(tmp_path, monkeypatch, said):
    monkeypatch.setattr(socket, "gethostname", lambda: "node-7")
    if said is not None:
        (tmp_path / "id").write_bytes(said)

    assert state_file.machine_name(tmp_path / "id") == "node-7"
