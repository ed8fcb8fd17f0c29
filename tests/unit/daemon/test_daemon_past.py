"""Ended jobs: what is recorded of them, what the state file keeps, and who may see it."""

import sqlite3
from dataclasses import replace
from types import SimpleNamespace

import pytest
from past_job import PAST

from tandem.errors import StateError
from tandemd.core.events import (
    FindingBegan,
    GpuAdded,
    JobCancelled,
    ProcessAttached,
    ProcessExited,
    UsageSampled,
)
from tandemd.core.model import JobClass, JobSpec, Options, Usage
from tandemd.core.past import past_of
from tandemd.core.scheduler import Scheduler
from tandemd.core.watchdog.finding import Finding
from tandemd.desk import Desk
from tandemd.edges.journal import MIGRATIONS, Journal, PastQuery
from tandemd.remembered import Remembered

SPEC = JobSpec(job_class=JobClass.BATCH, name="train", group="sweep")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state.db"


def opened(path, **more):
    return Remembered(path, at_once=True, **more)


def names(found):
    return [job.name for _, job in found]


def ended(*, first, second, cancelled=False):
    """The record kept of a job of two processes that leave with these usages."""
    core = Scheduler(Options())
    for number in (1, 2):
        core.handle(
            ProcessAttached(now_ns=10, process_id=number, job_id=7, uid=1000, gpu=number, spec=SPEC)
        )
    core.handle(GpuAdded(now_ns=11, process_id=1, gpu=5))
    samples = (Usage(process_id=1, **first), Usage(process_id=2, **second))
    core.handle(UsageSampled(now_ns=20, samples=samples))
    finding = Finding(rule="leak", since_ns=20, what="", why="", advice="", facts={})
    core.handle(FindingBegan(now_ns=21, job_id=7, finding=finding))
    if cancelled:
        core.handle(JobCancelled(now_ns=22, job_id=7, signal="TERM", grace_ns=10**9))
    for number in (1, 2):
        core.handle(ProcessExited(now_ns=30, process_id=number))
    return past_of(
        core.finished[7],
        user="ann",
        command="train.py",
        name_of=str,
        wall_ns=lambda at_ns: at_ns + 1000,
    )


def test_figures_of_all_processes_are_in_what_is_kept():
    past = ended(
        first={
            "device_bytes": 40,
            "peak_bytes": 60,
            "launches": 3,
            "iterations": 5,
            "exclusive_ns": 7,
            "refused_by": (1, 1, 0),
            "wait_total_ns": (0, 1, 100, 2, 4),
        },
        second={"device_bytes": 50, "peak_bytes": 50, "launches": 4, "steps": 2, "shared_ns": 1},
    )

    assert past == replace(
        PAST,
        gpus=("1", "2", "5"),
        began_wall_ns=1010,
        ended_wall_ns=1030,
        gpu_ns=8,
        shared_ns=1,
        waited_ns=7,  # not the wait for its own window
        peak_bytes=90,
        launches=7,
        iterations=7,
        refusals=2,
    )


def test_a_peak_between_two_looks_counts():
    assert ended(first={"device_bytes": 1, "peak_bytes": 99}, second={}).peak_bytes == 99


def test_who_was_cancelled_is_told_from_who_ended():
    assert ended(first={}, second={}, cancelled=True).outcome == "cancelled"
    assert ended(first={}, second={}).outcome == "ended"


def test_it_outlives_the_daemon_and_the_machine_as_it_was(path, monkeypatch):
    opened(path).keep_past(PAST)
    monkeypatch.setattr("tandemd.remembered._boot", lambda: "another")

    assert opened(path).past(PastQuery()) == [(1, PAST)]


def test_only_the_newest_are_kept(path):
    before = opened(path, most_past=3)
    for name in "abcd":
        before.keep_past(replace(PAST, name=name))
    assert names(before.past(PastQuery())) == ["d", "c", "b"]

    before.keep_most_past(4)
    before.keep_past(replace(PAST, name="e"))
    assert names(before.past(PastQuery())) == ["e", "d", "c", "b"]

    assert names(opened(path, most_past=1).past(PastQuery())) == ["e"]


@pytest.mark.parametrize(("slip", "left"), [(0, "ba"), (1, "cba")])
def test_a_slip_that_is_mended_before_a_restart_costs_nothing_of_what_was_kept(path, slip, left):
    kept = opened(path, most_past=3)
    for name in "ab":
        kept.keep_past(replace(PAST, name=name))

    kept.keep_most_past(slip)
    kept.keep_past(replace(PAST, name="c"))
    kept.keep_most_past(3)

    assert "".join(names(kept.past(PastQuery()))) == left


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({}, "cba"),
        ({"user": "ann"}, "ca"),
        ({"user": "1001"}, "b"),
        ({"user": "an"}, ""),
        ({"uid": 1001}, "b"),
        ({"group": "other"}, "c"),
        ({"since_ns": 20}, "cb"),
        ({"until_ns": 20}, "a"),
        ({"since_ns": 10, "until_ns": 30, "user": "ann"}, "a"),
        ({"most": 2}, "cb"),
        ({"before_id": 2}, "a"),
    ],
)
def test_what_is_asked_for_is_found(path, query, found):
    kept = opened(path)
    kept.keep_past(replace(PAST, name="a", ended_wall_ns=10))
    kept.keep_past(replace(PAST, name="b", ended_wall_ns=20, uid=1001, user="bob"))
    kept.keep_past(replace(PAST, name="c", ended_wall_ns=30, group="other"))

    assert "".join(names(kept.past(PastQuery(**query)))) == found


def test_what_was_ended_is_found_at_once_though_a_thread_writes_it(path):
    kept = Remembered(path, at_once=False)
    for _ in range(20):
        kept.keep_past(PAST)

    assert len(kept.past(PastQuery())) == 20
    kept.close(30)


def test_where_none_are_kept_it_is_said_why(path):
    with pytest.raises(StateError, match=r"daemon\.history is 0"):
        opened(path, most_past=0).past(PastQuery())
    with pytest.raises(StateError, match="it has no state file; see daemon"):
        opened(None).past(PastQuery())


def test_a_history_of_none_is_emptied(path):
    opened(path).keep_past(PAST)
    opened(path, most_past=0).keep_past(PAST)

    assert opened(path).past(PastQuery()) == []


def test_a_file_that_cannot_be_read_is_told(path):
    kept = opened(path)
    sqlite3.connect(path, isolation_level=None).execute("DROP TABLE past")

    with pytest.raises(StateError, match=r"state\.db cannot be read: no such table"):
        kept.past(PastQuery())


def test_a_row_of_another_version_is_left_out(path):
    kept = opened(path)
    kept.keep_past(PAST)
    file = sqlite3.connect(path, isolation_level=None)
    file.execute("INSERT INTO past (uid, user, job_group, ended_ns, job) VALUES (0, '', '', 1, 1)")

    assert names(kept.past(PastQuery())) == ["train"]


def test_a_file_of_the_version_before_gets_the_table(path, monkeypatch):
    with monkeypatch.context() as before:
        before.setattr("tandemd.edges.journal.MIGRATIONS", MIGRATIONS[:3])
        before.setattr(Journal, "_drop_past", lambda _: None)
        Journal(path).close()

    kept = opened(path)
    kept.keep_past(PAST)

    assert names(kept.past(PastQuery())) == ["train"]


def test_what_could_not_be_written_comes_with_the_next(path, monkeypatch):
    monkeypatch.setattr("tandemd.edges.journal.BUSY_S", 0)
    kept = opened(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    kept.keep_past(replace(PAST, name="a"))
    other.execute("ROLLBACK")

    kept.keep_past(replace(PAST, name="b"))

    assert names(kept.past(PastQuery())) == ["b", "a"]


@pytest.mark.parametrize(
    ("privacy", "uid", "seen"),
    [
        ("open", 1001, ["train.py", "train.py"]),
        ("hide-cmdline", 1001, ["train.py", ""]),
        ("hide-cmdline", 0, ["train.py", "train.py"]),
        ("own-only", 1001, ["train.py"]),
        ("own-only", 0, ["train.py", "train.py"]),
    ],
)
def test_who_sees_what_of_others(path, privacy, uid, seen):
    kept = opened(path)
    kept.keep_past(PAST)
    kept.keep_past(replace(PAST, uid=1001))
    limits = SimpleNamespace(meet=lambda _: None, is_admin=lambda who: who == 0)
    desk = Desk(
        loop=SimpleNamespace(remembered=kept, scheduler=None),
        sessions=None,
        inventory=SimpleNamespace(refresh=None),
        limits=limits,
        privacy=privacy,
        runtime_dir=path.parent,
    )

    assert [job.command for _, job in desk.past(uid, PastQuery())] == seen
