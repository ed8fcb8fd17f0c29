"""`%tandem` in a notebook, as IPython loads and calls it."""

import os
import sys
from types import ModuleType

import pytest

import tandem
from tandem.errors import UnavailableError


class RefusedError(Exception):
    """An error that IPython shows without a traceback."""


class Shell:
    """An IPython shell whose magics can be called."""

    def __init__(self):
        tandem.load_ipython_extension(self)

    def register_magic_function(self, func, magic_kind, magic_name):
        assert (magic_kind, magic_name) == ("line", "tandem")
        self.magic = func


@pytest.fixture
def shell(monkeypatch, runtime_dir):
    monkeypatch.setenv("TANDEM_RUNTIME_DIR", str(runtime_dir))
    monkeypatch.delenv("TANDEM_JOB_ID", raising=False)
    error = ModuleType("IPython.core.error")
    error.UsageError = RefusedError
    for name in ("IPython", "IPython.core"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, error.__name__, error)
    return Shell()


def test_alone_it_says_why_the_notebook_runs_or_waits(shell, monkeypatch, job, capsys):
    monkeypatch.setenv("TANDEM_JOB_ID", job)

    shell.magic("")

    told = capsys.readouterr().out.splitlines()
    assert told[0] == "has not used the gpu yet"
    assert "  class normal" in told


@pytest.mark.parametrize("line", ["priority batch", "priority=batch"])
def test_what_the_notebook_may_use_is_changed(shell, monkeypatch, job, client, capsys, line):
    monkeypatch.setenv("TANDEM_JOB_ID", job)

    shell.magic(f"  {line} ")

    assert client.job(job).priority == "batch"
    assert capsys.readouterr().out == ""
    shell.magic("memory=20GiB slo=none")
    assert (client.job(job).memory_quota_bytes, client.job(job).slo_p99_ns) == (20 << 30, None)


def test_what_has_no_effect_is_said(shell, monkeypatch, job, capsys):
    monkeypatch.setenv("TANDEM_JOB_ID", job)

    shell.magic("idle_release 60s")

    assert capsys.readouterr().out.startswith("warning: idle_release has no effect")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("ps", "%tandem alone says why"),
        ("run -- python train.py", "!tandem ps"),
        ("priority", "%tandem alone"),
        ("colour red", "%tandem alone"),
        ("colour=red", "cannot set 'colour'; known are priority, memory"),
        ("swappable=yes", "fixed when a job starts"),
        ("priority urgent", "urgent"),
    ],
)
def test_what_it_does_not_know_is_answered_with_what_it_does(shell, monkeypatch, job, line, told):
    monkeypatch.setenv("TANDEM_JOB_ID", job)

    with pytest.raises(RefusedError) as refused:
        shell.magic(line)

    assert told in str(refused.value)


def test_a_notebook_that_is_no_job_is_told_how_to_be_one(shell, daemon):
    with pytest.raises(RefusedError, match="tandem kernelspec install"):
        shell.magic("priority latency")


def test_a_process_that_attached_by_itself_is_found_by_its_number(shell, daemon, monkeypatch):
    class Known(tandem.Client):
        def jobs(self, *_, **__):
            process = type("Process", (), {"pid": os.getpid()})
            other = type("Process", (), {"pid": os.getpid() + 1})
            return [
                type("Job", (), {"name": name, "processes": (of,)})
                for name, of in (("j-1", other), ("j-2", process))
            ]

    monkeypatch.setattr("tandem._client.Client", Known)

    with pytest.raises(RefusedError, match="j-2"):  # a job the daemon does not know
        shell.magic("")


def test_without_a_daemon_it_says_so(shell, monkeypatch):
    monkeypatch.setenv("TANDEM_JOB_ID", "j-1")

    with pytest.raises(RefusedError) as refused:
        shell.magic("")

    assert isinstance(refused.value.__context__, UnavailableError)
