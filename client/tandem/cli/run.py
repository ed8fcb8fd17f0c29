"""`tandem run`."""

import os
import shlex
from collections.abc import Set
from dataclasses import replace
from typing import Any

import click

from tandem import _launch
from tandem._launch import Launch, Plan
from tandem.cli._defaults import Requesting
from tandem.cli._launching import Launching
from tandem.cli._parsed import Parsed, taken_back
from tandem.cli._requests import name_option, request_of, request_options
from tandem.errors import UsageError


def parse_variable(text: str, *, what: str = "env") -> tuple[str, str]:
    """Name and value from `NAME=VALUE`."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise UsageError(f"{what} {text!r} is not NAME=VALUE")
    return name, value


class _Run(Launching, Requesting):
    """What is wrong with the user's file has the exit code of what is wrong with the words."""


@click.command(cls=_Run, context_settings={"allow_interspersed_args": False})
@request_options
@name_option
@click.option(
    "--require/--no-require",
    default=False,
    envvar="TANDEM_REQUIRE",
    help="Fail instead of running unshared.",
)
@click.option(
    "--wait/--no-wait",
    default=True,
    envvar="TANDEM_WAIT",
    help="Whether the job may stand in line for a GPU (policy `lanes`); if not it ends with 75.",
)
@click.option(
    "--env",
    "variables",
    multiple=True,
    type=Parsed("NAME=VALUE", parse_variable),
    help="Set a variable of the job; may be repeated.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Print what would be run, with what the daemon would set and what variables of Tandem's "
    "are set already, and run nothing. An older daemon notes it as a job that ends at once.",
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(**options: Any) -> None:
    """Start COMMAND so that it shares the GPU with other jobs.

    The command replaces this process: its output, signals and exit code are its own. Without a
    daemon it runs unshared, after one line of warning, until there is one; refused by the daemon it
    does so for good, without any limit. Options come before the command. Of a `tandem run` that
    becomes another one there is the job of the last.

    What no option says is taken from the variable that is named with it, and else from [run] of
    ~/.config/tandem/config.toml, where keys are options with underscores: memory_min = "2GiB".
    The value none takes back what either says, as if nobody had said it: --memory none. So it does
    for priority, memory, memory-min, persistent, ephemeral, wait-memory, sm, isolation, slo and
    idle-release; switches have their --no-.

    \b
    Exit code: that of the command, or
      125  tandem failed       126  the command cannot be executed
      127  command not found    75  no room, with --require or --no-wait

    \b
    Examples:
      tandem run -p latency --slo p99=50ms -J llama -- python serve.py
      tandem run -p batch -m 20GiB -- torchrun --nproc-per-node 2 train.py
      tandem run -m 40% --wait-memory 5min -- python train.py
      tandem run --no-wait --persistent 20GiB --ephemeral 40GiB -- python train.py
      tandem run --dry-run -m 40% -- python train.py
    """
    launch = Launch(
        command=options["command"],
        request=replace(request_of(options), no_wait=not options["wait"]),
        gpu=options["gpu"],
        extra=dict(options["variables"]),
        require=options["require"],
        return_memory=options["return_memory"],
    )
    gone = taken_back(click.get_current_context())
    environ = {name: value for name, value in os.environ.items() if name not in gone}
    try:
        if options["dry_run"]:
            _show(_launch.rehearse(launch, environ, uid=os.geteuid()), gone & os.environ.keys())
            return
        _launch.run(launch, environ, uid=os.geteuid())
    except OSError as exc:
        raise _launch.LaunchError(str(exc), exit_code=_launch.EXIT_FAILED) from exc


def _show(plan: Plan, gone: Set[str]) -> None:
    said = {  # what Tandem reads also where it is the caller's own: elsewhere it would be missing
        k: v
        for k, v in sorted(plan.environ.items())
        if k.startswith("TANDEM_") or os.environ.get(k) != v
    }
    unset = [word for name in sorted(gone) for word in ("-u", name)]
    words = ["env", *unset, *(f"{k}={v}" for k, v in said.items()), plan.program, *plan.argv[1:]]
    click.echo(shlex.join(words))
