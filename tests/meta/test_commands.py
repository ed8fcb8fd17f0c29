"""The table of commands, the commands, and their documentation agree."""

import re

import click
import pytest

from tandem.cli.__main__ import COMMANDS, load


@pytest.fixture(params=COMMANDS, ids=str)
def verb(request):
    return request.param


def commands_below(command):
    yield command
    if isinstance(command, click.Group):
        for child in command.commands.values():
            yield from commands_below(child)


def test_every_command_has_help_with_an_example(verb):
    for command in commands_below(load(COMMANDS[verb])):
        assert re.search(rf"Examples?:\n.*\btandem {verb}\b", command.help or ""), command.name


def test_every_option_has_help(verb):
    for command in commands_below(load(COMMANDS[verb])):
        options = [p for p in command.params if isinstance(p, click.Option)]
        assert [o.name for o in options if not o.help] == []


def test_every_command_has_its_name(verb):
    assert load(COMMANDS[verb]).name == verb


def test_the_docs_have_a_section_for_each_command_and_no_other(docs):
    sections = re.findall(r"^## tandem (\S+)$", (docs / "cli.md").read_text(), re.MULTILINE)

    assert sections == list(COMMANDS)


def test_the_docs_are_what_the_commands_say_now(root, docs, monkeypatch):
    monkeypatch.syspath_prepend(root / "packaging")
    from generate_cli_docs import page

    assert (docs / "cli.md").read_text() == page(), "run python packaging/generate_cli_docs.py"


@pytest.mark.parametrize("verb", ["ps", "status", "explain", "gpus", "doctor", "version"])
def test_every_command_that_reads_has_json(verb):
    flags = {flag for p in load(COMMANDS[verb]).params for flag in p.opts}

    assert "--json" in flags
