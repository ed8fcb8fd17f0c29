"""Jobs that have ended, as the client and the command list them from a real daemon."""

import json
from dataclasses import replace

import pytest
from past_job import PAST

from tandem.errors import UsageError
from tandemd.edges.journal import Journal

MANY = 2500  # more than two pages


@pytest.fixture
def many(runtime_dir):
    """Jobs that ended before the daemon started, in the order of their launches."""
    journal = Journal(runtime_dir / "state.db")
    journal.write(replace(PAST, launches=number) for number in range(MANY))
    journal.close()


def test_a_job_that_has_ended_is_listed_by_the_daemon_that_comes_after(client, daemon, job, tandem):
    client.cancel(job)
    client.wait(job, deadline_s=20)
    daemon.stop()
    daemon.start()

    (found,) = json.loads(tandem("history", "--since", "1h", "--json").stdout)

    assert (found["name"], found["display_name"], found["group"]) == (job, "sleeper", "team")
    assert (found["priority"], found["outcome"]) == ("normal", "cancelled")
    assert "sys.stdin.read" in found["command"]
    assert 0 < found["begin_time_ns"] <= found["end_time_ns"]
    assert job in tandem("history", "-G", "team").stdout
    assert tandem("history", "-G", "another", "--format", "csv").stdout.count("\n") == 1


def test_all_pages_are_read_and_the_newest_are_last(many, client):
    assert [job.launches for job in client.history()] == list(range(MANY))
    assert [job.launches for job in client.history(limit=1001)] == list(range(MANY))[-1001:]


def test_a_limit_of_none_at_all_is_refused(client):
    with pytest.raises(UsageError, match="limit is 0, not a number of jobs above 0"):
        client.history(limit=0)
