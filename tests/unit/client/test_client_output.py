"""How commands print."""

import contextlib
import csv
import json
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from tandem._results import Explanation, Finding, Gpu, Job, Wait
from tandem.cli import _output, explain, gpus, ps
from tandem.cli.set import parse_changes
from tandem.errors import UsageError

GIB = 2**30


def job(**changes):
    values = {
        "name": "j-7f3a",
        "display_name": "llama",
        "uid": 1000,
        "user": "srv",
        "command": "python serve.py",
        "gpu": "0",
        "group": "",
        "priority": "latency",
        "memory_quota_bytes": 40 * GIB,
        "memory_min_bytes": None,
        "wait_memory_ns": None,
        "sm_percent": None,
        "sm_count": None,
        "isolation": "",
        "mode": "time",
        "slo_p99_ns": None,
        "preemptible": None,
        "state": "running",
        "reason": "",
        "resident_bytes": 38 * GIB,
        "swapped_bytes": 0,
        "filed_bytes": 0,
        "memory_wait_bytes": 0,
        "memory_wait_place": 0,
        "gpu_time_ns": 14_000_000,
        "gpu_time_estimated": False,
        "wait_time_ns": 200_000,
        "launches": 12,
        "steps": 3,
        "share_ratio": 0.41,
        "share_target_ratio": None,
        "create_time_ns": 10**18,
        "processes": (),
        "etag": "1",
    }
    return Job(**(values | changes))


def cells(**changes):
    seen, now_ns = job(**changes), 10**18 + 192 * 10**9
    return {column.header: column.text(seen, now_ns) for column in ps.COLUMNS.values()}


def test_a_row_of_ps():
    assert cells() == {
        "JOB": "j-7f3a",
        "NAME": "llama",
        "USER": "srv",
        "CLASS": "latency",
        "STATE": "running",
        "GPU": "0",
        "BUSY%": "41",
        "P99": "-",
        "MEM(res/quota)": "38 GiB / 40 GiB",
        "SWAP": "-",
        "WAIT": "200 us",
        "GPU-TIME": "14 ms",
        "ENERGY": "-",
        "AGE": "3:12",
        "FINDINGS": "-",
        "GROUP": "-",
        "COMMAND": "python serve.py",
    }


def test_what_a_share_of_time_owes_is_behind_what_was_got():
    assert cells(share_target_ratio=0.3)["BUSY%"] == "41/30"


def test_what_requests_take_is_beside_what_was_asked_for():
    assert cells(request_p99_ns=12_000_000, requests=300)["P99"] == "12 ms"
    assert cells(request_p99_ns=12_000_000, slo_p99_ns=50_000_000)["P99"] == "12 ms/50 ms"
    assert cells(slo_p99_ns=50_000_000)["P99"] == "-/50 ms"
    assert cells(request_p99_ns=12_000_000, marked_p99_ns=20_000_000)["P99"] == "12 ms/(20 ms)"
    assert cells(slo_p99_ns=50_000_000, marked_p99_ns=20_000_000)["P99"] == "-/50 ms"


def test_memory_on_the_host_is_shown():
    assert cells(swapped_bytes=2 * GIB)["SWAP"] == "2 GiB"
    in_files = cells(swapped_bytes=2 * GIB, filed_bytes=GIB)["SWAP"]
    assert in_files == "2 GiB (1 GiB in files)"


@pytest.mark.parametrize("way", ["swappable", "checkpoint"])
def test_memory_that_may_be_moved_is_told_from_memory_that_stays(way):
    assert cells()["SWAP"] == "-"
    assert cells(**{way: True})["SWAP"] == "0 B"


def test_a_share_is_shown_until_it_is_known_in_bytes():
    share = {"memory_percent": 40}
    assert cells(memory_quota_bytes=None, **share)["MEM(res/quota)"] == "38 GiB / 40%"
    assert cells(**share)["MEM(res/quota)"] == "38 GiB / 40 GiB"


def test_what_is_unknown_is_a_dash():
    unknown = cells(display_name="", gpu="", memory_quota_bytes=None, command="", create_time_ns=0)

    assert unknown["MEM(res/quota)"] == "38 GiB / -"
    assert {unknown[name] for name in ("NAME", "GPU", "COMMAND", "AGE")} == {"-"}


def test_a_user_without_a_name_is_its_uid():
    assert cells(user="")["USER"] == "1000"


def test_estimated_time_is_marked():
    assert cells(gpu_time_estimated=True)["GPU-TIME"] == "~14 ms"


LEAK, STALL = (
    Finding(rule=rule, since_ns=0, what="so it is", why="it matters", advice="do this", facts={})
    for rule in ("leak", "stall")
)


def test_findings_are_named():
    assert cells(findings=(LEAK, STALL))["FINDINGS"] == "leak,stall"


@pytest.fixture
def ps_of(monkeypatch):
    """Return what `tandem ps` prints for these jobs."""

    def printed(jobs, *words):
        client = contextlib.nullcontext(SimpleNamespace(jobs=lambda show_finished: jobs))
        monkeypatch.setattr(ps, "open_client", lambda: client)
        done = CliRunner().invoke(ps.ps, words, catch_exceptions=False)
        assert done.exit_code == 0
        return done.stdout_bytes.decode()

    return printed


@pytest.mark.parametrize("group", ["slurm:7.0", ""])
def test_groups_are_a_column_where_there_are_any(ps_of, group):
    header, *rows = ps_of([job(group=""), job(group=group)]).splitlines()

    known = [column.header for name, column in ps.COLUMNS.items() if name not in ps.SELDOM]
    assert header.split() == [name for name in known if group or name != "GROUP"]
    assert [group in row for row in rows] == [not group, True]


def test_energy_is_shown_when_asked_for(ps_of):
    known, unknown = job(energy_mj=2_500_000), job()

    assert "ENERGY" not in ps_of([known])
    assert ps_of([known, unknown], "-o", "energy").split() == ["ENERGY", "2.5", "kJ", "-"]
    assert "energy_mj" in ps_of([known], "--format", "csv")


def test_columns_that_are_chosen_come_in_that_order(ps_of):
    assert ps_of([job()], "-o", "state, JOB,group").splitlines() == [
        "STATE    JOB     GROUP",
        "running  j-7f3a  -",
    ]


def test_a_job_whose_programs_make_ready_for_a_pause_is_shown_as_pausing(ps_of):
    making_ready = job(pause_in_ns=20_000_000_000)

    assert ps_of([making_ready], "-o", "state") == "STATE\npausing\n"
    assert ps_of([making_ready], "-o", "state", "--format", "csv") == "state\r\nrunning\r\n"


@pytest.mark.parametrize("command", [ps.ps, gpus.gpus])
@pytest.mark.parametrize("text", ["job,gpu-tme", "gpu-tme", ""])
def test_a_column_that_is_not_known_is_refused_with_those_that_are(command, text):
    done = CliRunner().invoke(command, ["-o", text])

    assert done.exit_code == 2
    wrong = "job" if command is gpus.gpus and "job" in text else text.split(",")[-1]
    assert f"--columns {text!r}: no column {wrong!r}; known are " in done.output


def test_csv_has_plain_numbers_and_their_units_in_its_header(ps_of):
    text = ps_of([job(group="a,b", slo_p99_ns=50_000_000)], "--format", "csv")

    header, row, end = text.split("\r\n")
    assert end == ""
    (said,) = csv.DictReader([header, row])
    assert said["resident_bytes"] == str(38 * GIB)
    assert said["wait_time_ns"] == "200000"
    assert said["share_ratio"] == "0.41"
    assert said["memory_percent"] == ""  # None
    assert said["gpu_time_estimated"] == "false"
    assert said["group"] == "a,b"
    assert said["slo_p99_ns"] == "50000000"


def test_the_names_in_csv_are_those_of_json():
    for columns, result in ((ps.COLUMNS, Job), (gpus.COLUMNS, Gpu)):
        names = [name for column in columns.values() for name in column.fields]

        assert set(names) <= set(result.__dataclass_fields__)
        assert len(names) == len(set(names))


def test_csv_of_chosen_columns_and_of_no_jobs_at_all(ps_of):
    seen = job(findings=(LEAK, STALL), command='say "x"\x1b')

    assert ps_of([seen], "-o", "job,findings,command", "--format", "csv") == (
        'name,findings,command\r\nj-7f3a,"leak,stall","say ""x""?"\r\n'
    )
    assert ps_of([], "-o", "job,age", "--format", "csv") == "name,create_time_ns\r\n"


@pytest.mark.parametrize("words", [("-o", "gpu"), ("--format", "csv")])
def test_json_goes_with_neither_columns_nor_another_format(words):
    for command in (ps.ps, gpus.gpus):
        done = CliRunner().invoke(command, ["--json", *words])

        assert isinstance(done.exception, UsageError)
        assert "give one of them" in str(done.exception)


def test_columns_are_aligned(capsys):
    rows = [("a", "5", "x y"), ("long-name", "12345", "z")]

    _output.print_table(("JOB", "WAIT", "COMMAND"), rows, right=("WAIT",))

    assert capsys.readouterr().out == (
        "JOB         WAIT  COMMAND\na              5  x y\nlong-name  12345  z\n"
    )


def test_a_table_without_rows_is_its_header(capsys):
    _output.print_table(("JOB", "WAIT"), [])

    assert capsys.readouterr().out == "JOB  WAIT\n"


def test_other_users_cannot_move_our_cursor(capsys):
    _output.print_table(("COMMAND",), [("a\x1b[2J\nb",)])

    assert capsys.readouterr().out == "COMMAND\na?[2J?b\n"


def test_a_pipe_gets_whole_lines_without_colours(capsys):
    _output.print_table(("STATE", "COMMAND"), [("running", "x" * 500)])

    assert capsys.readouterr().out.splitlines()[1] == "running  " + "x" * 500


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setattr(_output, "on_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.delenv("NO_COLOR", raising=False)


def test_a_terminal_gets_colours_unless_told_otherwise(terminal, monkeypatch):
    assert _output.paint("waiting") == "\x1b[33mwaiting\x1b[0m"
    assert _output.paint("j-7f3a") == "j-7f3a"

    monkeypatch.setenv("NO_COLOR", "")
    assert _output.paint("waiting") == "waiting"


def test_a_terminal_gets_lines_that_fit(terminal, capsys):
    _output.print_table(("JOB", "COMMAND"), [("j-1", "x" * 500)])

    assert capsys.readouterr().out.splitlines()[1] == "j-1  " + "x" * 15


def test_json_has_the_names_and_units_of_the_api(capsys):
    _output.print_json([job()])

    (shown,) = json.loads(capsys.readouterr().out)
    assert set(shown) == set(Job.__dataclass_fields__)
    assert shown["resident_bytes"] == 38 * GIB


GPU = Gpu(
    index=0,
    uuid="GPU-0",
    product_name="Tandem Software GPU",
    mode="time",
    memory_total_bytes=GIB,
    memory_used_bytes=0,
    sm_count=4,
    busy_ratio=0.5,
    name="0",
    software=True,
)


def test_json_of_one_thing_is_an_object(capsys):
    _output.print_json(GPU)

    assert json.loads(capsys.readouterr().out)["busy_ratio"] == 0.5


@pytest.mark.parametrize(
    ("count", "told"),
    [(None, ""), (0, ""), (1, "1 process computes"), (2, "2 processes compute")],
)
def test_processes_without_this_daemon_are_below_the_gpus(count, told, capsys):
    gpus.show([replace(GPU, unmanaged_processes=count)])

    _, _, *below = capsys.readouterr().out.splitlines()
    expected = f"gpu 0: {told} without this daemon; see `tandem doctor`"
    assert below == ([expected] if told else [])


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["-o", "gpu,busy"], "GPU  BUSY%\n  0     50\n"),
        (["-o", "gpu,draining", "--format", "csv"], "name,draining\r\n0,true\r\n"),
        (
            ["-o", "name", "--format", "csv"],
            "product_name,software\r\nTandem Software GPU,true\r\n",
        ),
    ],
)
def test_columns_of_gpus_that_are_chosen_come_alone(monkeypatch, words, shown):
    found = [replace(GPU, unmanaged_processes=1, draining=True)]
    client = contextlib.nullcontext(SimpleNamespace(gpus=lambda: found))
    monkeypatch.setattr(gpus, "open_client", lambda: client)

    done = CliRunner().invoke(gpus.gpus, words, catch_exceptions=False)

    assert done.stdout_bytes.decode() == shown


def test_an_explanation_as_text(monkeypatch):
    monkeypatch.setattr(time, "localtime", time.gmtime)
    found = Explanation(
        job="j-1",
        summary="waiting: class latency holds the gpu",
        lines=("next look at the end of the request",),
        mode="time",
        policy="priority",
        waits=(Wait(reason="gate", total_ns=14_000_000), Wait(reason="memory", total_ns=0)),
        story=("held for j-2",),
        findings=(LEAK,),
    )

    assert explain.lines(found) == [
        "waiting: class latency holds the gpu",
        "  next look at the end of the request",
        "  waited so far: gate 14 ms",
        "leak: so it is",
        "  since 1970-01-01 00:00:00; it matters",
        "  do this",
        "lately:",
        "  held for j-2",
    ]


def test_changes_are_keys_and_values():
    assert parse_changes(("priority=batch", "memory-min=1g")) == {
        "priority": "batch",
        "memory_min": "1g",
    }


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (("priority",), "'priority' is not KEY=VALUE"),
        (("memory=",), "'memory=' is not KEY=VALUE"),
        (("colour=red",), "cannot set 'colour'; known are priority, memory"),
        (("sm=1%", "sm=2%"), "'sm' is given twice"),
        (("swappable=",), "'swappable' is fixed when a job starts; restart it with `tandem run"),
        (("swappable=yes",), "'swappable' is fixed when a job starts"),
    ],
)
def test_bad_changes_are_refused(changes, complaint):
    with pytest.raises(UsageError, match=complaint):
        parse_changes(changes)
