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


# Slurm and readers of files take a value as it stands, up to the end of the line.
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
    help="sh or fish: for eval; slurm: what a TaskProlog prints; file: lines NAME=VALUE, for "
    "EnvironmentFile= and --env-file.",
)
@json_option
def env(form: str, as_json: bool, **options: Any) -> None:
    """Print the variables by which a program that somebody else starts shares the GPU.

    They are what `tandem run` sets: LD_PRELOAD, before what it is here already, what is asked for,
    by options, variables or ~/.config/tandem/config.toml, and where the daemon is, unless that is
    /run/tandem. The daemon is asked for what MPS needs; its
    objections are warnings here.

    Unlike `tandem run` this registers no job. Each process that uses the GPU becomes a job of its
    own when it first does so: -m is its limit alone. Those of one torchrun or of one step of Slurm
    are held together all the same, as ranks that wait for each other must be; what else started
    several at once needs -G. Nor is it refused where --isolation or --memory-min cannot be kept.
    What is set for one program at a time and can go through `tandem run` should.

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
