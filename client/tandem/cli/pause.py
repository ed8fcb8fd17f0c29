"""`tandem pause` and `tandem resume`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from tandem._results import Job
from tandem.cli._jobs import jobs_argument
from tandem.cli._output import json_option, open_client, print_json

if TYPE_CHECKING:
    from tandem._client import Client


@click.command()
@jobs_argument
@json_option
def pause(jobs: tuple[str, ...], as_json: bool) -> None:
    """Hold jobs at their next launch until they are resumed; what the GPU has begun goes on.

    \b
    Examples:
      tandem pause j-7f3a
      tandem pause train eval
    """
    _change(jobs, lambda client, name: client.pause(name), as_json=as_json)


@click.command()
@jobs_argument
@json_option
def resume(jobs: tuple[str, ...], as_json: bool) -> None:
    """Let paused jobs go on.

    \b
    Examples:
      tandem resume j-7f3a
    """
    _change(jobs, lambda client, name: client.resume(name), as_json=as_json)


def _change(names: tuple[str, ...], change: Callable[[Client, str], Job], *, as_json: bool) -> None:
    """Change each; what was done is shown, also where a later one cannot be."""
    changed: list[Job] = []
    try:
        with open_client() as client:
            # One after the other: what was done before one fails is in the list.
            changed.extend(change(client, name) for name in names)
    finally:
        if as_json:
            print_json(changed)
        for job in () if as_json else changed:
            click.echo(f"{job.name} is {job.state}")
