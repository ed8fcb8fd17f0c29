"""`tandem partition apply` asks before it destroys anything."""

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import click.testing
import pytest

from tandem._results import GpuCut, MigInstance
from tandem.cli import partition

NEW = MigInstance(name=None, profile="3g.71gb")
OLD = MigInstance(name="0:1", profile="1g.18gb")
PLAN = GpuCut(done=False, destroyed=(OLD,), created=(NEW,), turned="", users=())


@pytest.fixture
def cutting(monkeypatch):
    """Runs the command at a terminal with this answer; returns what the daemon was really asked."""

    def run(*words, answer="", plan=PLAN, at_terminal=True):
        calls = []

        def cut_gpu(layout, *, dry_run=False):
            if not dry_run:
                calls.append(layout)
            return plan

        client = SimpleNamespace(cut_gpu=cut_gpu)
        monkeypatch.setattr(partition, "open_client", lambda: nullcontext(client))
        stdin = SimpleNamespace(isatty=lambda: at_terminal)
        monkeypatch.setattr(partition, "sys", SimpleNamespace(stdin=stdin))
        words = ["apply", "--mig", "0=3g.71gb", *words]
        done = click.testing.CliRunner().invoke(partition.partition, words, input=answer)
        return calls, done

    return run


@pytest.mark.parametrize(("answer", "done"), [("y\n", ["0=3g.71gb"]), ("n\n", []), ("", [])])
def test_at_a_terminal_it_shows_what_is_destroyed_and_asks(cutting, answer, done):
    calls, ended = cutting(answer=answer)

    assert calls == done
    assert "0:1 (1g.18gb) would be destroyed" in ended.output
    assert "3g.71gb would be created" in ended.output
    assert bool(ended.exit_code) is not bool(done)


def test_it_does_nothing_unasked(cutting):
    calls, ended = cutting(at_terminal=False)

    assert calls == []
    assert "nobody can be asked here" in str(ended.exception)
    assert cutting("--yes", at_terminal=False)[0] == ["0=3g.71gb"]
    assert cutting("--dry-run", at_terminal=False)[0] == []


def test_it_names_who_is_in_the_way_and_does_not_ask(cutting):
    plan = replace(PLAN, users=("pid 7 (job train)",))

    calls, ended = cutting("--yes", plan=plan)

    assert calls == []
    assert "is used by pid 7 (job train); end them first" in str(ended.exception)
