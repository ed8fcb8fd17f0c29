"""`tandem completion`: scripts for shells, and the words they can offer."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner

from tandem.cli import _completing
from tandem.cli.__main__ import tandem

SHELLS = {"bash": "complete -o nosort", "zsh": "#compdef tandem\n", "fish": "complete --no-files"}


def script(shell):
    done = CliRunner().invoke(tandem, ["completion", shell], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


@pytest.mark.parametrize(("shell", "part"), SHELLS.items(), ids=list(SHELLS))
def test_the_script_registers_tandem_and_asks_it(shell, part, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")  # a package may be built without the shell

    text = script(shell)

    assert part in text
    assert f"_TANDEM_COMPLETE={shell}_complete" in text


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["comp"], ["completion"]),
        (["run", "--prio"], ["--priority"]),
        (["run", "-p", ""], ["latency", "normal", "batch"]),
        (["trace", "rec"], ["record"]),
        (["completion", ""], list(SHELLS)),
    ],
    ids=lambda value: " ".join(value),
)
def test_bash_offers_what_fits(words, offered, tmp_path):
    command = tmp_path / "tandem"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m tandem.cli "$@"\n')
    command.chmod(0o755)
    at = f"COMP_WORDS=(tandem {' '.join(repr(w) for w in words)}); COMP_CWORD={len(words)}"
    ask = f'{script("bash")}\n{at}\n_tandem_completion tandem\nprintf "%s\\n" "${{COMPREPLY[@]}}"'

    done = subprocess.run(
        ["/bin/bash", "-c", ask],
        env={
            "PATH": f"{tmp_path}:{os.defpath}",
            "PYTHONPATH": str(Path(__file__).parents[3] / "client"),
        },
        capture_output=True,
        text=True,
        check=True,
    )

    assert (done.stdout.split(), done.stderr) == (offered, "")


def test_a_shell_that_is_not_known_is_refused_with_those_that_are():
    done = CliRunner().invoke(tandem, ["completion", "tcsh"])

    assert done.exit_code == 2
    assert "'tcsh' is not one of 'bash', 'zsh', 'fish'" in done.output


def test_a_wrong_file_of_the_user_keeps_nothing_from_being_completed(tmp_path, monkeypatch):
    (tmp_path / "tandem").mkdir()
    (tmp_path / "tandem" / "config.toml").write_text("[rnu]\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    asked = {
        "_TANDEM_COMPLETE": "bash_complete",
        "COMP_WORDS": "tandem run --prio",
        "COMP_CWORD": "2",
    }

    done = CliRunner().invoke(tandem, prog_name="tandem", env=asked)

    assert done.output == "plain,--priority\n"


class Daemon:
    """A daemon's answers."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def jobs(self, *, deadline_s):
        names = ["train", "a b", "$(reboot)", "", "\x1b[2J", "--json"]
        facts = {"priority": "batch", "state": "running", "group": "team"}
        return [
            SimpleNamespace(name=f"j-{number}", display_name=name, **facts)
            for number, name in enumerate(names)
        ]

    def gpus(self, *, deadline_s):
        return [SimpleNamespace(name=name, product_name="H200") for name in ("0", "1:2")]

    def policy(self, *, deadline_s):
        return SimpleNamespace(available=["fair", "fifo", "priority"])


@pytest.mark.parametrize(
    ("complete", "incomplete", "offered"),
    [
        (_completing.jobs, "", ["train", "j-0", "j-1", "j-2", "j-3", "j-4", "j-5"]),
        (_completing.jobs, "t", ["train"]),
        (_completing.groups, "", ["team"]),
        (_completing.gpus, "1", ["1:2"]),
        (_completing.policies, "f", ["fair", "fifo"]),
    ],
)
def test_what_the_daemon_knows_is_offered_where_a_shell_takes_it_for_a_word(
    monkeypatch, complete, incomplete, offered
):
    monkeypatch.setattr("tandem.cli._output.open_client", Daemon)
    context = click.Context(click.Command("any"))

    items = complete(context, click.Argument(["words"]), incomplete)

    assert [item.value for item in items] == offered
    assert items[0].help
