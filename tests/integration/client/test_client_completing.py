"""Completions that a shell offers and that only the daemon knows."""

import pytest


@pytest.fixture
def offered(tandem):
    """Return what bash would offer for the last of the words."""

    def ask(*words):
        said = {"COMP_WORDS": " ".join(["tandem", *words]), "COMP_CWORD": str(len(words))}
        done = tandem(**said, _TANDEM_COMPLETE="bash_complete")
        assert done.stderr == ""
        return [line.partition(",")[2] for line in done.stdout.splitlines() if line]

    return ask


@pytest.mark.parametrize("verb", ["pause", "explain", "set", "dag draw"])
def test_jobs_are_offered(offered, job, verb):
    assert offered(*verb.split(), "sle") == ["sleeper"]


def test_a_job_that_was_said_is_offered_by_its_other_name_alone(offered, job):
    assert offered("cancel", "sleeper", "") == [job]


def test_nothing_is_offered_where_no_daemon_answers(offered, environ):
    assert offered("pause", "") == []
