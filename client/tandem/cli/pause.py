"""`tandem pause` and `tandem resume`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING

import click

from tandem._results import Job
from tandem.cli._jobs import check_named, jobs_argument, one_by_one
from tandem.cli._output import json_option, open_client, print_json
from tandem.cli._parsed import Parsed
from tandem.cli._progress import progress
from tandem.errors import StateError
from tandem.units import parse_duration

if TYPE_CHECKING:
    from tandem._client import Client


HELD = ("paused", "swapped")
SLACK_S = 5.0  # time for the news that a grace is over to arrive


@click.command()
@jobs_argument
@click.option(
    "--grace",
    "grace_ns",
    type=Parsed("TIME", parse_duration),
    default="30s",
    show_default=True,
    help="Time for programs with a pause handler to get ready, an hour at most; 0s: none.",
)
@click.option(
    "--wait/--no-wait",
    default=True,
    show_default=True,
    help="Whether to wait until all are held.",
)
@json_option
def pause(
    *, jobs: tuple[str, ...], group: str | None, grace_ns: int, wait: bool, as_json: bool
) -> None:
    """Hold jobs at their next launch until they are resumed; work already on the GPU continues.

    Jobs of one group are held together: if one is paused, the others wait with it. With -G all are
    paused, and `tandem resume -G` lets all continue.

    A program may ask to do something first, such as write a checkpoint (`on_pause` of `tandem.job`
    in Python). Its job, and with it the group, is then held once the program is ready or the grace
    time is over; all other jobs are held at once. Ctrl-C ends only the waiting: `tandem resume`
    takes the pause back. A job that was resumed or ended meanwhile is an error (4).

    \b
    Examples:
      tandem pause j-7f3a
      tandem pause train eval
      tandem pause --grace 5min train
      tandem pause -G torchrun:29500:none
    """
    check_named(jobs, group)

    def change(client: Client) -> Iterator[Job]:
        grace_s = grace_ns / 1e9
        if group is not None:
            yield from client.pause_group(group, grace_s=grace_s)
        yield from one_by_one(jobs, lambda name: client.pause(name, grace_s=grace_s))

    _change(change, then=_held if wait else None, as_json=as_json)


@click.command()
@jobs_argument
@json_option
def resume(jobs: tuple[str, ...], group: str | None, as_json: bool) -> None:
    """Let paused jobs continue.

    \b
    Examples:
      tandem resume j-7f3a
      tandem resume -G torchrun:29500:none
    """
    check_named(jobs, group)

    def change(client: Client) -> Iterator[Job]:
        yield from one_by_one(jobs, client.resume) if group is None else client.resume_group(group)

    _change(change, as_json=as_json)


def _held(client: Client, jobs: list[Job]) -> list[Job]:
    """Wait until those jobs that are about to be paused are held; return all, as they are then."""
    told = {job.name: job.pause_in_ns for job in jobs if job.pause_in_ns is not None}
    if not told:
        return jobs
    deadline_s = max(told.values()) / 1e9 + SLACK_S
    with progress(is_long=True) as shown, closing(client.watch(deadline_s=deadline_s)) as events:
        shown.now(f"waiting until programs are ready for the pause: {', '.join(told)}")
        # Asked only once the watch has begun, so no change after this goes unseen.
        now = {name: client.job(name) for name in told}
        while any(job.pause_in_ns is not None for job in now.values()):
            event = next(events)
            if event.job.name in now:
                now[event.job.name] = event.job
    for job in now.values():
        if job.pause_unready:
            click.echo(
                f"tandem: warning: {job.name}: {job.pause_unready} of its programs did not get "
                "ready for the pause before the grace was over",
                err=True,
            )
        if job.state not in HELD:
            raise StateError(
                f"{job.name} is not held: it is {job.state}; somebody resumed it, or it has ended"
            )
    return [now.get(job.name, job) for job in jobs]


def _change(
    change: Callable[[Client], Iterator[Job]],
    *,
    then: Callable[[Client, list[Job]], list[Job]] | None = None,
    as_json: bool,
) -> None:
    """Change all jobs; show those that were changed, even if a later one fails."""
    changed: list[Job] = []
    try:
        with open_client() as client:
            # One at a time: if one fails, those changed before it are in the list.
            changed.extend(change(client))
            if then is not None:
                changed = then(client, changed)
    finally:
        if as_json:
            print_json(changed)
        for job in () if as_json else changed:
            click.echo(
                f"{job.name} {job.reason if job.pause_in_ns is not None else f'is {job.state}'}"
            )
