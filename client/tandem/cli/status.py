"""`tandem status`."""

import click

from tandem.cli import gpus
from tandem.cli._output import json_option, open_client, print_json
from tandem.units import format_duration


@click.command()
@json_option
def status(as_json: bool) -> None:
    """Show the daemon: its version, policy, jobs and GPUs.

    \b
    Examples:
      tandem status
      tandem status --json | jq -r .policy
    """
    with open_client() as client:
        found = client.status()
    if as_json:
        print_json(found)
        return
    click.echo(f"tandemd {found.version}, pid {found.pid}, up {format_duration(found.uptime_ns)}")
    click.echo(f"policy   {found.policy}")
    click.echo(f"jobs     {found.jobs} with {found.processes} processes")
    click.echo(f"runtime  {found.runtime_dir}")
    click.echo(f"clock    {found.clock}")
    click.echo()
    gpus.show(found.gpus)
