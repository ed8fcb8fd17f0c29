"""The state file against a model: from files of any schema, through any number of restarts."""

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tandemd.core.turns.interference import Features, Neighbour, Trial
from tandemd.edges import journal
from tandemd.edges.journal import APPLICATION_ID, MIGRATIONS, GoneJob, Journal, KeptJob, KeptTrial

MOST = 5  # trials per kind, instead of a thousand

parts = st.floats(0, 1)
features = st.builds(Features, sm=parts, memory=parts, copy=parts, busy=parts)
neighbours = st.builds(Neighbour, features, part=parts)
trials = st.builds(
    Trial,
    own=neighbours,
    others=st.lists(neighbours, min_size=1, max_size=2).map(tuple),
    factor=st.floats(0.5, 16),
)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)  # what UTF-8 can encode
kinds = st.sampled_from([("H200", "580"), ("H200", "590"), ("", "")])
kept_trials = st.builds(KeptTrial, kind=kinds, trial=trials)
job_ids = st.integers(1, 4)
specs = st.dictionaries(
    texts, st.one_of(st.none(), st.booleans(), texts, st.integers(0, 2**64 - 1))
)
kept_jobs = st.builds(
    KeptJob,
    job_id=job_ids,
    uid=st.integers(0, 2**32 - 2),
    spec=specs,
    paused=st.booleans(),
    command=texts,
)
notes = st.one_of(kept_trials, kept_jobs, st.builds(GoneJob, job_id=job_ids))


def file_of(path, version, found):
    """Writes the file as a daemon of that version would have left it."""
    file = sqlite3.connect(path, isolation_level=None)
    for step in MIGRATIONS[:version]:
        for statement in step:
            file.execute(statement)
    if version:
        file.execute(f"PRAGMA application_id={APPLICATION_ID}")
        file.execute(f"PRAGMA user_version={version}")
        for one in found:
            row = (*one.kind, msgspec.json.encode(one.trial).decode())
            file.execute("INSERT INTO trials (gpu, driver, trial) VALUES (?, ?, ?)", row)
    file.close()


class JournalBesideModel(RuleBasedStateMachine):
    """The file returns what was written to it, in this or an earlier life of the daemon."""

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "state.db"
        self.trials = {}
        self.jobs = {}
        self.opened = []
        self.limit = patch.object(journal, "MOST_TRIALS", MOST)
        self.limit.start()

    @initialize(version=st.integers(0, len(MIGRATIONS)), found=st.lists(kept_trials, max_size=MOST))
    def from_any_version(self, version, found):
        file_of(self.path, version, found)
        for one in found if version else ():
            self.trials[one.kind] = [*self.trials.get(one.kind, []), one.trial]
        self.open()

    def open(self):
        self.journal = Journal(self.path, "boot")
        self.opened.append(self.journal)

    @rule(batch=st.lists(notes, max_size=8))
    def write(self, batch):
        self.journal.write(batch)
        for note in batch:
            match note:
                case KeptTrial():
                    self.trials.setdefault(note.kind, []).append(note.trial)
                case KeptJob():
                    self.jobs[note.job_id] = note
                case GoneJob():
                    self.jobs.pop(note.job_id, None)

    @rule()
    def restart(self):
        self.journal.close()
        self.open()

    @rule()
    def killed(self):
        self.open()  # without having been closed

    @rule()
    def reboot(self):
        self.journal.close()
        Journal(self.path, "another").close()
        self.jobs.clear()
        self.restart()

    @invariant()
    def says_what_was_written(self):
        if hasattr(self, "journal"):
            wanted = {kind: tuple(trials[-MOST:]) for kind, trials in self.trials.items()}
            assert self.journal.trials() == wanted
            assert self.journal.jobs() == self.jobs

    def teardown(self):
        for one in self.opened:
            one.close()
        self.limit.stop()
        self.folder.cleanup()


TestJournalBesideModel = JournalBesideModel.TestCase
TestJournalBesideModel.settings = settings(max_examples=25, stateful_step_count=15)


@given(st.integers(0, len(MIGRATIONS)))
def test_a_file_has_the_same_schema_whatever_it_was_made_by(version):
    def schema(path):
        with closing(sqlite3.connect(path)) as file:
            rows = file.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY name")
            return rows.fetchall(), file.execute("PRAGMA user_version").fetchone()

    with tempfile.TemporaryDirectory() as folder:
        old, new = Path(folder) / "old", Path(folder) / "new"
        file_of(old, version, [])

        for path in (old, new):
            Journal(path).close()

        assert schema(old) == schema(new)
        assert schema(new)[1] == (len(MIGRATIONS),)
