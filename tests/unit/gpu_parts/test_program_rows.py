"""Runs of programs bare, each under its own daemon, and all under one become a row."""

import pytest
from bench.gpu.figures.program_rows import ARMS, BARE_TOO, COLUMNS, TOGETHER, row_of
from bench.gpu.figures.workload_rows import (
    BARE,
    DIFFERENT,
    MANAGED,
    NOT_REPEATABLE,
    NOT_RUN,
    SAME,
    UNMANAGED,
    Run,
    not_run,
)
from bench.gpu.parts.programs import BELIEFS
from bench.gpu.programs import SOURCES

HANGS = Run(error="it was not done after 60 s")


def ran(digest="a", *, is_managed=True):
    return Run(digest=digest, is_managed=is_managed)


def in_arms(**others):
    return dict.fromkeys(ARMS, ran()) | others


def test_a_row_has_every_column():
    row = row_of(in_arms(bare=ran("0123456789abcdef", is_managed=False)))

    assert [*COLUMNS, "ok"] == list(row)
    assert row[BARE] == "0123456789ab"
    assert row["runs_bare"] == "ok"
    assert set(not_run("jax is not installed", COLUMNS)) == set(COLUMNS)


@pytest.mark.parametrize(
    ("managed", "together", "again", "verdict", "good"),
    [
        ("a", "a", "", SAME, True),
        ("b", "a", "a", DIFFERENT, False),
        ("a", "b", "a", DIFFERENT, False),
        ("a", "b", "c", NOT_REPEATABLE, True),
    ],
)
def test_digests_have_a_verdict(managed, together, again, verdict, good):
    row = row_of(in_arms(managed=ran(managed), together=ran(together)), again=again)

    assert (row["same_results"], row["ok"]) == (verdict, good)


@pytest.mark.parametrize("arm", [MANAGED, TOGETHER])
def test_a_program_that_fails_under_tandem_alone_is_not_ok(arm):
    row = row_of(in_arms(**{arm: HANGS}))

    assert row[f"runs_{arm}"] == "error: it was not done after 60 s"
    assert row[arm] == NOT_RUN
    assert not row["ok"]


def test_a_program_that_fails_without_tandem_too_is_not_held_against_it():
    row = row_of(in_arms(bare=HANGS, managed=HANGS))

    assert row["ok"]
    assert (row["runs_managed"], row["runs_together"]) == (BARE_TOO, "ok")
    assert row["same_results"] == NOT_RUN


def test_a_program_that_ran_without_the_daemon_did_not_run_under_tandem():
    unshared = in_arms(together=ran(is_managed=False))

    assert row_of(unshared)["runs_together"] == UNMANAGED
    assert not row_of(unshared)["ok"]
    assert row_of(unshared, should_be_managed=False)["ok"]


def test_an_arm_that_there_was_no_time_for_is_not_held_against_it():
    row = row_of({BARE: ran(), MANAGED: ran()})

    assert (row["same_results"], row["runs_together"], row["ok"]) == (SAME, NOT_RUN, True)
    assert row_of({BARE: ran()})["ok"]


def test_every_program_answers_a_belief():
    asked = {path.split(".")[1] for belief in BELIEFS for path in belief.answers}

    assert asked == set(SOURCES)
