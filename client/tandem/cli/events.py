"""`tandem events`."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from tandem._text import printable
from tandem.cli._output import open_client, paint

if TYPE_CHECKING:
    from tandem._client import Client
    from tandem._results import JobEvent


@click.command()
@click.argument("jobs", nargs=-1, metavar="[JOB...]")
@click.option(
    "-f", "--follow", is_flag=True, help="What happens from now on instead, until Ctrl-C."
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object a line.")
def events(jobs: tuple[str, ...], follow: bool, as_json: bool) -> None:
    """Show what happened to each JOB, or to all: when it came, what state it was in, and so on.

    Kinds of events are the states of `tandem ps`, and registered, attached (a process of it uses
    the GPU), updated, cancelled, finding and finding-over (of the watchdog). Of the past each kind
    is told once for each job, with when that was last and how often, and the job in JSON is as it
    is now; jobs that ended are known for ten minutes. Following tells of every change, and ends
    with exit code 7 when the daemon goes away or hangs.

    \b
    Examples:
      tandem events
      tandem events --follow train
      tandem events -f --json | jq -r 'select(.kind == "finding") | .job.name'
    """
    # However long there is nothing to say: who has seen enough is not to get an error.
    with contextlib.suppress(KeyboardInterrupt), open_client() as client:
        for event in _of(jobs, client, follow=follow):
            click.echo(json.dumps(asdict(event)) if as_json else line(event))


def _of(names: tuple[str, ...], client: Client, *, follow: bool) -> Iterator[JobEvent]:
    watched = client.watch() if follow else None
    numbers = {client.job(name).name for name in names}
    for event in client.events() if watched is None else watched:
        if not names or event.job.name in numbers:
            yield event


def line(event: JobEvent) -> str:
    """An event for people: local time, job, what happened, and the job's name."""
    then = time.localtime(event.time_ns / 1e9)
    job, often = event.job, f"  ({event.times:,} times so far)" if event.times > 1 else ""
    kind = paint(event.kind.ljust(12))
    name = printable(job.display_name or "-")
    return f"{time.strftime('%F %T', then)}  {job.name:<8}  {kind}  {name}{often}"
