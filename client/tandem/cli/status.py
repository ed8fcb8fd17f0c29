"""`tandem status`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from tandem._results import Allowance
from tandem._text import printable
from tandem.cli import gpus
from tandem.cli._output import json_option, open_client, print_json
from tandem.errors import UnavailableError
from tandem.units import format_bytes, format_duration

if TYPE_CHECKING:
    from tandem._results import Status

WAIT_S = 20.0  # a daemon that is starting answers far sooner
LOOK_S = 0.05


@click.command()
@click.option(
    "--wait",
    is_flag=True,
    help=f"If no daemon answers, wait up to {WAIT_S:g} s for one that is starting.",
)
@json_option
def status(*, wait: bool, as_json: bool) -> None:
    """Show the daemon: its version, policy, jobs and GPUs, and the limits of your own jobs.

    \b
    Exit code: 0 when it answered, or
      7  no daemon answers

    \b
    Examples:
      tandem status
      tandem status --json | jq -r .policy
      tandemd & tandem status --wait
    """
    found = _status_within(WAIT_S if wait else 0.0)
    if as_json:
        print_json(found)
        return
    click.echo(f"tandemd {found.version}, pid {found.pid}, up {format_duration(found.uptime_ns)}")
    click.echo(f"policy   {found.policy}")
    click.echo(f"jobs     {found.jobs} with {found.processes} processes")
    click.echo(f"runtime  {found.runtime_dir}")
    click.echo(f"clock    {found.clock}")
    if found.allowance is not None:
        click.echo(f"for you  {_said(found.allowance)}")
    if found.state_problem is not None:
        click.echo(f"problem  {printable(found.state_problem)}")
    click.echo()
    gpus.show(found.gpus)


def _status_within(seconds: float) -> Status:
    """Ask the daemon, again and again for so long if there is none."""
    end_s = time.monotonic() + seconds
    while True:
        try:
            with open_client() as client:
                return client.status()
        except UnavailableError:
            if time.monotonic() >= end_s:
                raise
        time.sleep(LOOK_S)


def _said(allowance: Allowance) -> str:
    """Format limits, such as `classes up to normal (limits.default.max_class), ...`."""
    classes = "any class"
    if allowance.max_class_key is not None:
        classes = f"classes up to {allowance.max_class} ({allowance.max_class_key})"
    size, percent = allowance.max_memory_bytes, allowance.max_memory_percent
    sizes = [format_bytes(size)] if size else []
    sizes += [f"{percent}%"] if percent else []
    if not sizes:
        return f"{classes}, no limit of memory"
    most = " or, where that is more, ".join(sizes)
    return f"{classes}, {most} of each gpu's memory for all jobs ({allowance.max_memory_key})"
