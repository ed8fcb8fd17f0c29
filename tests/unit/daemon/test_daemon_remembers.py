"""Jobs that return to a restarted daemon, which restores them from the state file."""

import json
import sqlite3
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from tandemd import remembered as module
from tandemd.core.model import NO_LIMIT, Cancel, Job, JobClass, JobSpec, Notice
from tandemd.edges import journal
from tandemd.remembered import Remembered

SPEC = JobSpec(job_class=JobClass.BATCH, memory_bytes=3 << 30, slo_p99_ns=5, name="n", group="g")


def job(job_id=7, uid=1000, spec=SPEC, **facts):
    return Job(job_id=job_id, uid=uid, arrival=0, created_ns=0, registered=True, spec=spec, **facts)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state.db"


def opened(path):
    return Remembered(path, at_once=True)


def test_a_job_comes_back_with_what_it_had_whatever_it_asks_for(path):
    opened(path).keep_job(job(paused=True), "train.py")
    after = opened(path)

    assert after.claim_of(7).uid == 1000
    spec, kept = after.take_back(7, JobSpec(name="asked", memory_bytes=9))

    assert spec == SPEC
    assert (kept.paused, kept.command) == (True, "train.py")
    assert after.take_back(7, SPEC) == (SPEC, None)  # it is already back
    assert after.claim_of(7) is None


def test_a_job_that_was_to_be_paused_is_paused_when_it_comes_back(path):
    notice = Notice(number=3, until_ns=5)
    opened(path).keep_job(job(notice=notice, pause_number=3), "")

    kept = opened(path).take_back(7, SPEC)[1]
    assert (kept.paused, kept.notice) == (True, notice)


def test_of_a_job_that_is_held_it_is_known_whether_its_programs_were_told(path):
    opened(path).keep_job(job(paused=True, pause_number=3), "")

    assert opened(path).take_back(7, SPEC)[1].notice == Notice(number=3, until_ns=0)


def test_that_a_job_is_being_ended_is_known_with_its_grace(path):
    cancel = Cancel(signal="TERM", kill_at_ns=5)
    opened(path).keep_job(job(cancel=cancel), "")

    assert opened(path).take_back(7, SPEC)[1].cancel == cancel


def test_who_is_not_known_gets_what_it_asks_for(path):
    assert opened(path).take_back(7, SPEC) == (SPEC, None)
    assert opened(path).claim_of(7) is None


def test_what_was_changed_counts_and_what_has_ended_is_forgotten(path):
    before = opened(path)
    for job_id in (7, 8):
        before.keep_job(job(job_id), "")
    before.keep_job(job(spec=replace(SPEC, memory_bytes=NO_LIMIT)), "")
    before.forget_job(8)
    before.forget_job(9)

    after = opened(path)

    assert after.take_back(7, SPEC)[0] == replace(SPEC, memory_bytes=NO_LIMIT)
    assert after.claim_of(8) is None


def test_what_is_as_it_was_is_not_written_again(path):
    before = opened(path)
    before.keep_job(job(), "")
    file = sqlite3.connect(path)
    file.execute("DELETE FROM jobs")
    file.commit()

    before.keep_job(job(), "")
    assert opened(path).claim_of(7) is None
    before.keep_job(job(paused=True), "")
    assert opened(path).claim_of(7).paused


def test_what_could_not_be_written_is_written_with_the_next_change(path, monkeypatch):
    monkeypatch.setattr(journal, "BUSY_S", 0)
    before = opened(path)
    for job_id in (7, 8):
        before.keep_job(job(job_id, paused=True), "train.py")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    with capture_logs() as logs:
        before.keep_job(job(), "train.py")
        before.keep_job(job(spec=replace(SPEC, memory_bytes=9)), "train.py")
        before.forget_job(8)
        was_kept, problem = before.is_kept, before.problem
        other.execute("ROLLBACK")
        before.keep_job(job(9), "")

    assert (was_kept, before.is_kept) == (False, True)
    assert problem == f"the state file {path} cannot be written: database is locked"
    assert before.problem == ""
    after = opened(path)
    assert after.claim_of(8) is None
    assert after.claim_of(9) is not None
    spec, kept = after.take_back(7, SPEC)
    assert (spec.memory_bytes, kept.paused) == (9, False)
    assert [(line["log_level"], line["event"]) for line in logs] == [
        ("warning", "the state file cannot be written, trying again with each change"),
        ("info", "the state file can be written again"),
    ]


def test_what_could_not_be_written_is_written_in_the_end(path, monkeypatch):
    monkeypatch.setattr(journal, "BUSY_S", 0)
    before = opened(path)
    before.keep_job(job(), "")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    before.forget_job(7)
    other.execute("ROLLBACK")

    before.close(1)

    assert opened(path).claim_of(7) is None


def test_a_command_that_is_told_later_is_written(path):
    before = opened(path)
    before.keep_job(job(), "")
    before.keep_job(job(), "train.py")

    assert opened(path).claim_of(7).command == "train.py"


def test_a_field_that_the_other_version_did_not_know_is_as_asked_and_one_too_many_is_nothing(path):
    opened(path).keep_job(job(), "")
    file = sqlite3.connect(path)
    file.execute("""UPDATE jobs SET job = '{"spec": {"slo_p99_ns": 9, "gone": 1}, "also": 2}'""")
    file.commit()

    spec, _ = opened(path).take_back(7, SPEC)

    assert spec == replace(SPEC, slo_p99_ns=9)


@pytest.mark.parametrize("text", ["{", '{"spec": 7}', '{"paused": true}'])
def test_a_job_that_cannot_be_read_comes_back_as_it_asks(path, text):
    opened(path).keep_job(job(), "")
    file = sqlite3.connect(path)
    file.execute("UPDATE jobs SET job = ?", (text,))
    file.commit()

    assert opened(path).take_back(7, SPEC) == (SPEC, None)


def test_a_value_of_the_wrong_kind_is_told(path):
    opened(path).keep_job(job(), "")
    file = sqlite3.connect(path)
    file.execute("""UPDATE jobs SET job = '{"spec": {"slo_p99_ns": "soon"}}'""")
    file.commit()

    with capture_logs() as logs:
        assert opened(path).take_back(7, SPEC)[0] == SPEC
    assert "continuing with what it asks for" in logs[0]["event"]


@pytest.mark.parametrize(
    "spec",
    [
        {"wait_memory_ns": 10**21},
        {"slo_p99_ns": -1},
        {"idle_release_ns": 2**63},
        {"memory_bytes": 2**64},
        {"memory_percent": 101},
        {"sm_count": 2**32},
        {"isolation": "none"},
    ],
)
def test_a_value_out_of_its_range_is_told_and_the_job_comes_back_as_it_asks(path, spec):
    opened(path).keep_job(job(), "")
    file = sqlite3.connect(path)
    file.execute("UPDATE jobs SET job = ?", (json.dumps({"spec": spec}),))
    file.commit()

    with capture_logs() as logs:
        assert opened(path).take_back(7, SPEC)[0] == SPEC
    assert f"{next(iter(spec))} " in logs[0]["reason"]


def test_jobs_from_before_the_machine_was_started_are_gone(path, monkeypatch):
    monkeypatch.setattr(module, "_boot", lambda: "before")
    opened(path).keep_job(job(), "")

    monkeypatch.setattr(module, "_boot", lambda: "now")
    assert opened(path).claim_of(7) is None


def test_only_the_youngest_jobs_are_known(path, monkeypatch):
    before = opened(path)
    for job_id in (9, 8, 7):
        before.keep_job(job(job_id), "")
    monkeypatch.setattr(journal, "MOST_JOBS", 2)

    after = opened(path)

    assert [after.claim_of(each) is not None for each in (9, 8, 7)] == [False, True, True]


def test_every_field_of_a_spec_comes_back(path):
    spec = JobSpec(
        job_class=JobClass.LATENCY,
        memory_bytes=1,
        memory_percent=2,
        memory_min_bytes=3,
        persistent_bytes=4,
        ephemeral_bytes=5,
        wait_memory_ns=6,
        sm_percent=7,
        sm_count=8,
        isolation="mps",
        slo_p99_ns=9,
        preemptible=False,
        idle_release_ns=10,
        swappable=True,
        checkpoint=True,
        name="ä" * 30,
        group='"g"',
    )
    assert all(
        getattr(spec, name) != getattr(JobSpec(), name) for name in JobSpec.__dataclass_fields__
    )
    opened(path).keep_job(job(spec=spec), "")

    found, _ = opened(path).take_back(7, JobSpec())

    assert found == spec
    assert isinstance(found.job_class, JobClass)
