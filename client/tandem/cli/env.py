"""`tandem env`."""

import json
import os
import shlex
from collections.abc import Callable
from typing import Any

import click

from tandem import _launch
from tandem.cli._defaults import Requesting
from tandem.cli._output import json_option
from tandem.cli._parsed import refuse_taken_back
from tandem.cli._requests import name_option, request_of, request_options


def _fish(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


# Slurm and programs that read such files take a value literally, up to the end of the line.
FORMATS: dict[str, Callable[[str, str], str]] = {
    "sh": lambda name, value: f"export {name}={shlex.quote(value)}",
    "fish": lambda name, value: f"set -gx {name} {_fish(value)}",
    "slurm": lambda name, value: f"export {name}={value}",
    "file": lambda name, value: f"{name}={value}",
}


@click.command(cls=Requesting)
@request_options
@name_option
@click.option(
    "--format",
    "form",
    type=click.Choice(list(FORMATS)),
    default="sh",
    help="sh or fish: for eval; slurm: what a TaskProlog prints; file: NAME=VALUE lines, for "
    "EnvironmentFile= and --env-file.",
)
@json_option
def env(form: str, as_json: bool, **options: Any) -> None:
    """Print the variables that make a program started by something else share the GPU.

    They are those that `tandem run` sets: LD_PRELOAD, with the library before any others in it;
    what options, variables or ~/.config/tandem/config.toml ask for; and where the daemon is, unless
    that is /run/tandem. The daemon is asked what MPS needs; its objections are only warnings here.

    Unlike `tandem run`, this registers no job. Each process becomes a job of its own when it first
    uses the GPU, so -m limits each process separately. The jobs of one torchrun or one Slurm step
    are still held together, as ranks that wait for each other must be; anything else that starts
    several processes needs -G. A job is not refused if --isolation or --memory-min cannot be kept.
    Prefer `tandem run` for a single program that can be started by it.

    \b
    Examples:
      eval "$(tandem env -p batch -m 20GiB)"
      tandem env -p batch --format slurm
      tandem env --format file > tandem.env
      tandem env --json -G team | jq -r .LD_PRELOAD
    """
    refuse_taken_back(click.get_current_context())
    variables = _launch.environment(
        request_of(options),
        os.environ,
        uid=os.geteuid(),
        gpu=options["gpu"],
        return_memory=options["return_memory"],
    )
    if as_json:
        click.echo(json.dumps(variables, indent=2))
        return
    for name, value in variables.items():
        click.echo(FORMATS[form](name, value))
