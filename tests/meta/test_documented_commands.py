"""The commands and options in the documents exist."""

import re
import shlex
from pathlib import Path

import click
import pytest

from tandem.cli.__main__ import COMMANDS, load
from tandemd.__main__ import parse

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
NAME = re.compile(r"[a-z]+")
SHELL_WORDS = {"eval", "exec", "sudo", "time", "timeout"}  # what may stand before a command


def typed(document):
    """Yield the code in a document, one line or span at a time, with its line number."""
    in_code = False
    for number, line in enumerate(document.read_text().splitlines(), 1):
        in_code ^= line.lstrip().startswith("```")
        if in_code or line.startswith("    "):
            yield number, line.strip().removeprefix("$ ")
        else:
            for span in SPAN.findall(line):
                yield number, span


def invocations(text):
    """Yield the words of each of our commands in a shell line, without the program's path."""
    text = re.sub(r"\$\(|[()]", " ", text)  # in `eval "$(tandem env)"` the inner command counts
    lexer = shlex.shlex(text.replace('"', " "), posix=True, punctuation_chars="|;&<>")
    lexer.whitespace_split, lexer.commenters = True, "#"
    try:
        words = list(lexer)
    except ValueError:  # an apostrophe: not a command, or only part of one
        return
    call = []
    for word in [*words, ";"]:
        if set(word) <= set("|;&<>"):
            if (ours := our_part(call)) is not None:
                yield ours
            call = []
        else:
            call.append(word)


def our_part(words):
    """Return the words from our own command on, or None if the words do not begin with one."""
    while words and (words[0] in SHELL_WORDS or "=" in words[0]):
        words = words[1:]
    if words and words[0].rpartition("/")[2] in ("tandem", "tandemd"):
        return [words[0].rpartition("/")[2], *words[1:]]
    return None


def wrong_with(words):
    """Return the command or option of a call that does not exist, or None."""
    if words[0] == "tandemd":
        return unknown_flags(words[1:], flags_of_the_daemon())
    if not words[1:] or words[1].startswith(("-", "…", "...")):
        return None  # `tandem` or `tandem --help`
    if words[1] not in COMMANDS:
        return f"no command {words[1]}" if NAME.fullmatch(words[1]) else None
    command, rest = load(COMMANDS[words[1]]), words[2:]
    while isinstance(command, click.Group) and rest and rest[0] in command.commands:
        command, rest = command.commands[rest[0]], rest[1:]
    return unknown_flags(rest, flags_of(command) | {"--help"})


def flags_of(command):
    """Return the flags, with those below a group: `tandem dag FILE` is `tandem dag draw FILE`."""
    flags = {flag for p in command.params for flag in (*p.opts, *p.secondary_opts)}
    below = command.commands.values() if isinstance(command, click.Group) else ()
    return flags.union(*map(flags_of, below))


def unknown_flags(words, flags):
    """Return the first unknown flag, up to the command that another command would start."""
    for word in words:
        if word == "--":
            return None
        flag = word.partition("=")[0]
        if re.fullmatch(r"-[A-Za-z]|--[a-z][a-z-]*[a-z]", flag) and flag not in flags:
            return f"no option {flag}"
    return None


def flags_of_the_daemon():
    with pytest.MonkeyPatch.context() as patch:
        said = []
        patch.setattr(
            "argparse.ArgumentParser._print_message", lambda _, text, *__: said.append(text)
        )
        with pytest.raises(SystemExit):
            parse(["--help"])
    return set(re.findall(r"--?[a-z][\w-]*", "".join(said)))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_in_a_document_exists_with_its_options(document):
    wrong = {
        f"line {number}: {' '.join(words)}": problem
        for number, line in typed(document)
        for words in invocations(line)
        if (problem := wrong_with(words)) is not None
    }

    assert wrong == {}


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("tandem ps --jsom | jq .", "no option --jsom"),
        ("A=1 .venv/bin/tandem sp", "no command sp"),
        ('eval "$(tandem softgpu env --clok virtual)"', "no option --clok"),
        ("sleep 1; tandem partition apply --mik 0=off", "no option --mik"),
        ("tandemd --confg x.toml &", "no option --confg"),
        ("tandem run -p batch -- python train.py --jsom", None),
        ("tandem dag run.trace --iteration 3 -o x.html  # --jsom", None),
    ],
)
def test_what_does_not_exist_is_noticed(line, problem):
    assert [wrong_with(words) for words in invocations(line)] == [problem]
