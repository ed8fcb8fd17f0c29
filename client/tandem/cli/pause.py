"""`tandem pause` and `tandem resume`."""

import click

from tandem._results import Job
from tandem.cli._output import json_option, open_client, print_json


@click.command()
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...")
@json_option
def pause(jobs: tuple[str, ...], as_json: bool) -> None:
    """Hold jobs at their next launch until they are resumed; what the GPU has begun goes on.

    \b
    Examples:
      tandem pause j-7f3a
      tandem pause train eval
    """
    with open_client() as client:
        changed = [client.pause(name) for name in jobs]
    _show(changed, as_json=as_json)


@click.command()
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...")
@json_option
def resume(jobs: tuple[str, ...], as_json: bool) -> None:
    """Let paused jobs go on.

    \b
    Examples:
      tandem resume j-7f3a
    """
    with open_client() as client:
        changed = [client.resume(name) for name in jobs]
    _show(changed, as_json=as_json)


def _show(changed: list[Job], *, as_json: bool) -> None:
    if as_json:
        print_json(changed)
        return
    for job in changed:
        click.echo(f"{job.name} is {job.state}")
