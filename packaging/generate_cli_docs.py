"""Write docs/cli.md from the commands themselves.

python packaging/generate_cli_docs.py
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click

from tandem.cli.__main__ import COMMANDS, load
from tandem.errors import ERRORS

OUTPUT = Path(__file__).resolve().parent.parent / "docs"
NAME = "cli.md"

PREFACE = """\
# The command line

Made from the commands by `python packaging/generate_cli_docs.py`; do not edit.

Options come before arguments and, for `tandem run`, before the command. Sizes are bytes, or carry a
unit: `20GiB`, `20G` and `20g` are the same, `20GB` is decimal. Times need a unit: `50ms`. Commands
that only read take `--json`, with the names and units of [the Python API](python.md); tables are
for people and may change. For spreadsheets, `tandem ps`, `tandem history` and `tandem gpus` have
`--format csv`. Colours appear only on a terminal, and never under `NO_COLOR`. Options that you
always use can go into [a file](operations.md#what-your-jobs-ask-for).
"""

EXIT_CODES = """\
## Exit codes

`tandem run` becomes its command, so the exit code is the command's. If it fails before that, the
exit code is 125 (tandem failed, or did not understand its options), 126 (cannot be executed), 127
(not found) or 75 (no room, with `--require` or `--no-wait`). `tandem trace calls` has the same
codes except 75. `tandem doctor` exits with 1 if a check fails. All other commands:

| code | error | cause |
|---|---|---|
| 0 | | |
"""

EXIT_CODES_END = """\
| 129 | | ended by SIGHUP: as by SIGTERM, except in `tandem demo` |
| 130 | | interrupted from the keyboard |
| 143 | | ended by SIGTERM: a recording is kept, and what was started has ended |

If something that a command needs is not installed, such as the extras `[client]`, `[top]` and
`[cuda]`, that is a `StateError`. `tandem pause` and `tandem resume` take jobs one after the other
and stop at the first that fails: those before it stay paused or resumed, and are printed.
"""

COMPLETION = """\
## Completion

`eval "$(tandem completion bash)"` in `~/.bashrc` completes commands and options; zsh, fish and
packages are with [its command](#tandem-completion).
"""

PLACE = """\
## Where the daemon is looked for

`TANDEM_RUNTIME_DIR`, else `RUNTIME_DIRECTORY`, else the first of `$XDG_RUNTIME_DIR/tandem`,
`/run/tandem` and `/tmp/tandem-$UID` in which a daemon listens. `TANDEM_SOCKET` names the socket for
jobs directly. All variables are in [environment.md](environment.md).
"""


def generate(output: Path) -> None:
    """Write the page into `output`."""
    (output / NAME).write_text(page())


def page() -> str:
    """Return the page's text."""
    codes = [f"| {r.exit_code} | `{r.error.__name__}` | {_first_line(r.error)} |" for r in ERRORS]
    lines = [PREFACE, *_sections(), EXIT_CODES + "\n".join(codes), EXIT_CODES_END]
    lines += [COMPLETION, PLACE.rstrip()]
    return "\n".join(lines) + "\n"


def _sections() -> Iterator[str]:
    for verb, row in COMMANDS.items():
        yield from _command(load(row), f"tandem {verb}", level="##")


def _command(command: click.Command, path: str, *, level: str) -> Iterator[str]:
    text = inspect.cleandoc(command.help or "")
    prose, *examples = re.split(r"^Examples?:\n", text, maxsplit=1, flags=re.MULTILINE)
    yield f"{level} {path}\n"
    yield f"`{_usage(command, path)}`\n"
    yield _markdown(prose)
    yield from _options(command)
    if examples:
        yield f"```sh\n{inspect.cleandoc(examples[0])}\n```\n"
    if isinstance(command, click.Group):
        for name, child in sorted(command.commands.items()):
            yield from _command(child, f"{path} {name}", level=level + "#")


def _usage(command: click.Command, path: str) -> str:
    context = click.Context(command, info_name=path)
    return " ".join([path, *command.collect_usage_pieces(context)])


def _markdown(prose: str) -> str:
    # click shows a paragraph after \b verbatim; in Markdown, that is a code block.
    parts = [part.strip("\n") for part in re.split(r"\n\n+", prose) if part.strip("\b\n ")]
    shown = [
        f"```text\n{part[1:].strip(chr(10))}\n```" if part.startswith("\b") else part
        for part in parts
    ]
    return "\n\n".join(shown) + "\n"


def _options(command: click.Command) -> Iterator[str]:
    rows = [_option(p) for p in command.params if isinstance(p, click.Option)]
    if rows:
        yield "\n".join(["| option | effect |", "|---|---|", *rows]) + "\n"


def _option(option: click.Option) -> str:
    flags = [f"`{flag}`" for flag in (*option.opts, *option.secondary_opts)]
    variable = f" Also `{option.envvar}`." if option.envvar else ""
    value = "" if option.is_flag else f" {_cell(_value(option))}"
    told = _cell(f"{option.help}{_default(option)}{variable}")
    return f"| {', '.join(flags)}{value} | {told} |"


def _cell(text: str) -> str:
    """The text as a cell of a table, which a bare `|` would end."""
    return text.replace("|", "\\|")


def _default(option: click.Option) -> str:
    """The default, where `--help` shows it, too."""
    if not option.show_default or option.default is None:
        return ""
    if option.secondary_opts:
        return f" Default `{(option.opts if option.default else option.secondary_opts)[0]}`."
    return f" Default {option.default}."


def _value(option: click.Option) -> str:
    if option.metavar:
        return option.metavar
    if isinstance(option.type, click.Choice):
        return " | ".join(map(str, option.type.choices))
    return option.type.name.upper().removesuffix(" RANGE")


def _first_line(error: type[Exception]) -> str:
    return (error.__doc__ or "").partition("\n")[0].rstrip(".")


if __name__ == "__main__":
    generate(OUTPUT)
