"""Verbs that can do only a part of what they were told say what they did."""

import json
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from tandem.cli import dag, pause
from tandem.errors import NotFoundError


class Paused:
    """A client that knows only one job."""

    def pause(self, name, *, grace_s):
        assert grace_s == 30
        if name != "train":
            raise NotFoundError(f"no job is named '{name}'")
        return SimpleNamespace(name="j-1", state="paused", pause_in_ns=None)


@pytest.fixture
def runner(monkeypatch):
    @contextmanager
    def client():
        yield Paused()

    monkeypatch.setattr(pause, "open_client", client)
    monkeypatch.setattr(pause, "print_json", lambda jobs: print(json.dumps([j.name for j in jobs])))
    return CliRunner()


@pytest.mark.parametrize(("words", "shown"), [((), "j-1 is paused\n"), (("--json",), '["j-1"]\n')])
def test_a_job_that_was_paused_is_told_although_the_next_is_unknown(runner, words, shown):
    done = runner.invoke(pause.pause, ["train", "nope", *words])

    assert isinstance(done.exception, NotFoundError)
    assert done.stdout == shown


def test_jobs_that_were_not_tried_after_a_failure_are_named(runner):
    done = runner.invoke(pause.pause, ["nope", "train", "eval"])

    assert (done.stdout, str(done.exception)) == (
        "",
        "no job is named 'nope'; not tried: train, eval",
    )


def test_a_suffix_that_no_form_has_is_refused(tmp_path):
    recording = tmp_path / "run.trace"
    recording.touch()
    done = CliRunner().invoke(dag.dag, ["draw", str(recording), "-o", str(tmp_path / "o.png")])

    assert done.exit_code != 0
    assert "no form has the suffix '.png'" in str(done.exception)
    assert not (tmp_path / "o.png").exists()
