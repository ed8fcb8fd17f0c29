"""`tandem pause` and `tandem resume`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from tandem._results import Job
from tandem.cli._jobs import check_named, jobs_argument
from tandem.cli._output import json_option, open_client, print_json

if TYPE_CHECKING:
    from tandem._client import Client


@click.command()
@jobs_argument
@json_option
def pause(jobs: tuple[str, ...], group: str | None, as_json: bool) -> None:
    """Hold jobs at their next launch until they are resumed; what the GPU has begun goes on.

    Jobs of one group are held together: where one is paused, the others wait with it. With -G all
    are paused, and `tandem resume -G` lets all go on.

    \b
    Examples:
      tandem pause j-7f3a
      tandem pause train eval
      tandem pause -G torchrun:29500:none
    """
    check_named(jobs, group)

    def change(client: Client) -> Iterator[Job]:
        yield from map(client.pause, jobs) if group is None else client.pause_group(group)

    _change(change, as_json=as_json)


@click.command()
@jobs_argument
@json_option
def resume(jobs: tuple[str, ...], group: str | None, as_json: bool) -> None:
    """Let paused jobs go on.

    \b
    Examples:
      tandem resume j-7f3a
      tandem resume -G torchrun:29500:none
    """
    check_named(jobs, group)

    def change(client: Client) -> Iterator[Job]:
        yield from map(client.resume, jobs) if group is None else client.resume_group(group)

    _change(change, as_json=as_json)


def _change(change: Callable[[Client], Iterator[Job]], *, as_json: bool) -> None:
    """Change all; what was done is shown, also where a later one cannot be."""
    changed: list[Job] = []
    try:
        with open_client() as client:
            # One after the other: what was done before one fails is in the list.
            changed.extend(change(client))
    finally:
        if as_json:
            print_json(changed)
        for job in () if as_json else changed:
            click.echo(f"{job.name} is {job.state}")
