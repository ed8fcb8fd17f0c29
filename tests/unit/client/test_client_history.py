"""`tandem history` with a client that only records what it is asked."""

import contextlib
import csv
import json

import pytest
from click.testing import CliRunner

from tandem._results import PastJob
from tandem.cli import history as module
from tandem.cli.history import COLUMNS, FEW, history
from tandem.errors import NotFoundError, UsageError

SECOND = 10**9
JOB = PastJob(
    name="j-7f3a",
    display_name="train",
    uid=1000,
    user="ann",
    priority="batch",
    group="sweep",
    gpus=("0", "1"),
    command="python train.py",
    begin_time_ns=10**18,
    end_time_ns=10**18 + 192 * SECOND,
    outcome="cancelled",
    gpu_time_ns=60 * SECOND,
    gpu_time_estimated=True,
    wait_time_ns=SECOND,
    peak_bytes=2**30,
    launches=1234,
    iterations=5,
    refusals=2,
    findings=("leak", "stall"),
    energy_mj=18_000_000,
)


@pytest.fixture
def printed(monkeypatch):
    """Runs it on these jobs; returns what it prints and what it asked for."""

    def run(*words, jobs=(JOB,)):
        asked = []

        class Client:
            def history(self, **which):
                asked.append(which)
                return list(jobs)

        monkeypatch.setattr(module, "open_client", lambda: contextlib.nullcontext(Client()))
        monkeypatch.setattr(module.time, "time_ns", lambda: 10**18)
        done = CliRunner().invoke(history, words, catch_exceptions=False, standalone_mode=False)
        return done, asked

    return run


def test_a_row_has_how_it_ended_and_what_it_took():
    cells = {name: column.text(JOB, 0) for name, column in COLUMNS.items()}

    assert cells["gpus"] == "0,1"
    assert (cells["elapsed"], cells["outcome"]) == ("3:12", "cancelled")
    assert (cells["gpu-time"], cells["wait"], cells["peak"]) == ("~1:00", "1 s", "1 GiB")
    assert (cells["launches"], cells["refusals"]) == ("1,234", "2")
    assert cells["findings"] == "leak,stall"
    assert cells["energy"] == "18 kJ"


def test_what_is_seldom_wanted_is_shown_when_asked_for(printed):
    assert "REFUSALS" not in printed()[0].stdout
    assert printed("-o", "job,refusals")[0].stdout.split() == ["JOB", "REFUSALS", "j-7f3a", "2"]


def test_csv_has_each_field_once_by_its_name_in_json(printed):
    (row,) = csv.DictReader(printed("--format", "csv")[0].stdout.splitlines())
    (whole,) = json.loads(printed("--json")[0].stdout)

    assert row.keys() == whole.keys()
    assert (row["gpus"], row["findings"], row["peak_bytes"]) == ("0,1", "leak,stall", str(2**30))


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ([], {"limit": FEW}),
        (["--since", "2h"], {"since_ns": 10**18 - 7200 * SECOND}),
        (["--since", "2h", "-n", "3"], {"since_ns": 10**18 - 7200 * SECOND, "limit": 3}),
        (["--until", "1d"], {"until_ns": 10**18 - 86_400 * SECOND, "limit": FEW}),
        (["-u", "ann", "-G", "sweep"], {"user": "ann", "group": "sweep", "limit": FEW}),
    ],
)
def test_the_daemon_chooses(printed, words, asked):
    nothing = dict.fromkeys(("user", "group", "since_ns", "until_ns", "limit"))

    assert printed(*words)[1] == [nothing | asked]


def test_a_span_without_anything_in_it_is_refused(printed):
    with pytest.raises(UsageError, match="--since is not before --until"):
        printed("--since", "1h", "--until", "2h")


def test_a_user_who_does_not_exist_is_told_from_one_without_jobs(printed):
    assert printed("-u", "0", jobs=())[0].stdout.startswith("JOB")
    with pytest.raises(NotFoundError, match="no user 'nobody-has-this'"):
        printed("-u", "nobody-has-this", jobs=())
