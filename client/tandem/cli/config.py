"""`tandem config`: checks and shows the configuration of `tandemd` and the user's own file."""

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
from tandem.cli._group import Group
from tandem.cli._output import json_option

# This installation's daemon; if its libraries are missing, it says what to install.
_TANDEMD = (sys.executable, "-c", "from tandemd import main; main()")

_file = click.argument("file", required=False, type=click.Path(path_type=Path))


@click.group(cls=Group)
def config() -> None:
    """Inspect the daemon's configuration: /etc/tandem/config.toml, or FILE, and its drop-ins.

    This is what a daemon started now would read; a running one may have read something else. Both
    commands need the extra [daemon]. Without FILE they also cover your own file,
    ~/.config/tandem/config.toml, which holds the defaults of `tandem run`.

    \b
    Examples:
      tandem config check
      tandem config show --origin
    """


@config.command()
@_file
def check(file: Path | None) -> int:
    """Report what is wrong with the configuration, or that it is valid.

    The report names the files that were read, and sections for GPUs that are not on this machine.
    Exit code: 0 if everything is valid, else 2.

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
@click.option("--origin", is_flag=True, help="Show which file each value comes from.")
@json_option
def show(file: Path | None, origin: bool, as_json: bool) -> int:
    """Show the value of each key, whether configured or built in.

    Sections for GPUs, users and groups are shown if they are configured; so are the settings of
    your own file, under `run`.

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
    """Run the daemon's program; its stderr goes to our caller."""
    words = [option] if file is None else [option, f"--config={file}"]
    return subprocess.run([*_TANDEMD, *words], stdout=subprocess.PIPE, text=True, check=False)
