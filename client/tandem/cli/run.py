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
    """Split `NAME=VALUE` into name and value."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise UsageError(f"{what} {text!r} is not NAME=VALUE")
    return name, value


class _Run(Launching, Requesting):
    """Gives an error in the user's file the same exit code as one on the command line."""


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
    help="Whether the job may wait in line for a GPU (policy `lanes`); if not, it ends with 75.",
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
    help="Print the command with the variables it would get, also from the daemon, and those of "
    "Tandem's already set; run nothing. An older daemon records a job that ends at once.",
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(**options: Any) -> None:
    """Start COMMAND so that it shares the GPU with other jobs.

    The command replaces this process: its output, signals and exit code are its own. If no daemon
    answers, it runs unshared until one does, after a one-line warning. If the daemon refuses it, it
    runs unshared to its end, without any limit. Options come before the command. When one
    `tandem run` starts another, only the job of the last one remains.

    An option that is not given takes its value from the variable listed with it, else from [run] in
    ~/.config/tandem/config.toml, where keys are options with underscores: memory_min = "2GiB".
    The value none discards what variable and file say, as in --memory none. It works for priority,
    memory, memory-min, persistent, ephemeral, wait-memory, sm, isolation, slo and idle-release;
    switches have a --no- form instead.

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
    said = {  # Tandem's own even if the caller has set them: another shell would lack them
        k: v
        for k, v in sorted(plan.environ.items())
        if k.startswith("TANDEM_") or os.environ.get(k) != v
    }
    unset = [word for name in sorted(gone) for word in ("-u", name)]
    words = ["env", *unset, *(f"{k}={v}" for k, v in said.items()), plan.program, *plan.argv[1:]]
    click.echo(shlex.join(words))
