"""`tandem config`: what `tandemd` says of the files that it reads, and the user's own file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from tandem import _user_file
from tandem._text import printable
from tandem.cli._defaults import check as check_defaults
from tandem.cli._output import json_option

# The program of this installation, which says what to install where its libraries are missing.
_TANDEMD = (sys.executable, "-c", "from tandemd import main; main()")

_file = click.argument("file", required=False, type=click.Path(path_type=Path))


@click.group()
def config() -> None:
    """Look at the daemon's configuration: /etc/tandem/config.toml, or a file, and its drop-ins.

    It is what a daemon reads that is started now; one that runs may have begun with another. Both
    need the extra [daemon]. Without a file they are about your own as well,
    ~/.config/tandem/config.toml, which says what `tandem run` asks for where nothing else does.

    \b
    Examples:
      tandem config check
      tandem config show --origin
    """


@config.command()
@_file
def check(file: Path | None) -> int:
    """Say what is wrong with the configuration, or that it is valid.

    Also that it has sections of GPUs which are not on this machine. Said with it are the files that
    were read. Exit code: 0 if all is valid, else 2.

    \b
    Examples:
      tandem config check
      tandem config check team.toml
    """
    done = _tandemd("--check-config", file)
    click.echo(done.stdout, nl=False)
    if file is None:
        from tandem.cli.run import run

        if (own := check_defaults(run, os.environ)).said:
            click.echo(f"your own file is valid: {own.path}")
    return done.returncode


@config.command()
@_file
@click.option("--origin", is_flag=True, help="Say which file each value comes from.")
@json_option
def show(file: Path | None, origin: bool, as_json: bool) -> int:
    """Show the value of each key, said or not.

    Sections for GPUs, users and groups are shown where they are said, and so is what your own file
    says, under `run`.

    \b
    Examples:
      tandem config show
      tandem config show --origin | grep -v ^built-in
      tandem config show --json team.toml | jq '.[] | select(.key == "scheduler.policy")'
    """
    done = _tandemd("--print-config", file)
    if done.returncode:
        return done.returncode
    items = json.loads(done.stdout) + ([] if file else _own())
    if as_json:
        click.echo(json.dumps(items, indent=2))
    else:
        _print(items, with_origin=origin)
    return 0


def _own() -> list[dict[str, object]]:
    own = _user_file.read(os.environ)
    return [
        {"key": f"{_user_file.TABLE}.{key}", "value": value, "origin": own.path}
        for key, value in own.said.items()
    ]


def _print(items: Sequence[dict[str, object]], *, with_origin: bool) -> None:
    origins = [str(item["origin"] or "built-in") for item in items]
    width = max(map(len, origins))
    for item, origin in zip(items, origins, strict=True):
        where = f"{origin:<{width}}  " if with_origin else ""
        click.echo(printable(f"{where}{item['key']} = {json.dumps(item['value'])}"))


def _tandemd(option: str, file: Path | None) -> subprocess.CompletedProcess[str]:
    """What it says on stderr is for whoever called us."""
    words = [option] if file is None else [option, f"--config={file}"]
    return subprocess.run([*_TANDEMD, *words], stdout=subprocess.PIPE, text=True, check=False)
