"""`tandem events`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from tandem._text import printable
from tandem.cli import _completing
from tandem.cli._output import open_client, paint

if TYPE_CHECKING:
    from tandem._client import Client
    from tandem._results import JobEvent


#: A job that takes turns changes between running, waiting and idle many times a second.
KINDS = (
    *("registered", "attached", "running", "waiting", "idle", "paused", "swapped", "detached"),
    *("updated", "pausing", "cancelled", "finding", "finding-over", "exited"),
)


@click.command()
@click.argument("jobs", nargs=-1, metavar="[JOB...]", shell_complete=_completing.jobs)
@click.option("-f", "--follow", is_flag=True, help="Show events from now on instead, until Ctrl-C.")
@click.option(
    "-k",
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice(KINDS),
    metavar="KIND",
    help=f"Show only events of this kind; may be repeated. One of {', '.join(KINDS)}.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def events(jobs: tuple[str, ...], follow: bool, kinds: tuple[str, ...], as_json: bool) -> None:
    """Show what happened to each JOB, or to all: when it came, which states it was in, and so on.

    Kinds of events are the states of `tandem ps`, and registered, attached (one of its processes
    uses the GPU), updated, pausing (its programs were told), cancelled, finding and finding-over
    (from the watchdog, with the rule; a finding is also over when its job has exited). Past events
    are summarized: each kind appears once per job, with its last time and its count, and JSON has
    the job as it is now. Jobs that ended are known for ten minutes. --follow shows every change,
    and ends with exit code 7 when the daemon goes away or hangs. A job that takes turns changes
    between running, waiting and idle many times a second; use --kind to leave that out.

    \b
    Examples:
      tandem events
      tandem events --follow train
      tandem events -f -k registered -k exited
      tandem events -f -k finding --json | jq -r '.job.name + " " + .rule'
    """
    with open_client() as client:
        for event in _of(jobs, client, follow=follow):
            if kinds and event.kind not in kinds:
                continue
            click.echo(json.dumps(asdict(event)) if as_json else line(event))


def _of(names: tuple[str, ...], client: Client, *, follow: bool) -> Iterator[JobEvent]:
    watched = client.watch() if follow else None
    numbers = {client.job(name).name for name in names}
    for event in client.events() if watched is None else watched:
        if not names or event.job.name in numbers:
            yield event


def line(event: JobEvent) -> str:
    """Format an event for people: local time, job, what happened, and the job's name."""
    then = time.localtime(event.time_ns / 1e9)
    job, often = event.job, f"  ({event.times:,} times so far)" if event.times > 1 else ""
    kind = paint(event.kind.ljust(12))
    rule = f"  {printable(event.rule)}" if event.rule else ""
    name = printable(job.display_name or "-")
    return f"{time.strftime('%F %T', then)}  {job.name:<8}  {kind}  {name}{rule}{often}"
