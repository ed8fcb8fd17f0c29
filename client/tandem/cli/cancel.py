"""`tandem cancel`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from tandem._results import Job
from tandem._text import printable
from tandem._waits import ENDED
from tandem.cli._arrivals import show_arrivals
from tandem.cli._jobs import check_named, jobs_argument, one_by_one
from tandem.cli._output import json_option, open_client, print_json
from tandem.cli._parsed import Parsed
from tandem.errors import DeadlineError, UnavailableError
from tandem.units import parse_duration

if TYPE_CHECKING:
    from tandem._client import Client

KILLED_S = 10.0  # a process is gone this long after SIGKILL, unless stuck in the kernel


@click.command()
@jobs_argument
@click.option(
    "--signal",
    metavar="SIGNAL",
    default="TERM",
    show_default=True,
    help="The first signal: HUP, INT, QUIT, USR1, USR2, TERM or KILL.",
)
@click.option(
    "--grace",
    "grace_ns",
    type=Parsed("TIME", parse_duration),
    default="30s",
    show_default=True,
    help="Time from that signal to SIGKILL, a day at most; 0s: at once.",
)
@click.option(
    "--wait/--no-wait",
    default=True,
    show_default=True,
    help="Whether to wait until all have ended.",
)
@json_option
def cancel(
    *,
    jobs: tuple[str, ...],
    group: str | None,
    signal: str,
    grace_ns: int,
    wait: bool,
    as_json: bool,
) -> None:
    """End jobs: signal their processes, and send SIGKILL to those that remain after the grace time.

    Only a job's owner and admins may do this. A paused job is resumed, so that its signal handler
    gets the GPU and its memory back; a job that keeps waiting is ended by SIGKILL. A process
    that joins a job during the grace time is sent the signal, too. Ctrl-C ends only the waiting.
    With -G the signal goes to all jobs that are in the group now, or to none.

    Signals reach the process that `tandem run` became, and processes that have used the GPU since
    the daemon was started. Children that never use it are unknown to the daemon; they end if their
    parents end them, as launchers and data loaders do. If the daemon ends during the grace time,
    the next one sends SIGKILL to those processes that attach to it again: wait for the end with
    `tandem wait`.

    \b
    Exit code: 0 when all have ended, or with --no-wait will end, or
      3  no such job             6  not yours, or the daemon may not signal it
      4  it has ended already    7  the daemon went away, or hangs
      8  still there 10 s after SIGKILL, or the daemon did not confirm that it will end it

    \b
    Examples:
      tandem cancel train
      tandem cancel --signal INT --grace 2min j-7f3a j-81c0
      tandem cancel --grace 0s --no-wait train
      tandem cancel -G torchrun:29500:none
    """
    check_named(jobs, group)
    cancelled: list[Job] = []
    is_done = False
    with open_client() as client:
        try:
            # One at a time: if one fails, those cancelled before it are shown.
            for job in _cancelled(client, jobs, group, signal=signal, grace_s=grace_ns / 1e9):
                cancelled.append(job)
                _tell(job, as_json=as_json)
            is_done = True
        finally:
            if as_json and not (wait and is_done):
                print_json(cancelled)
        if wait:
            _await(client, cancelled, grace_s=grace_ns / 1e9, as_json=as_json)


def _cancelled(
    client: Client, jobs: tuple[str, ...], group: str | None, *, signal: str, grace_s: float
) -> Iterator[Job]:
    if group is not None:
        yield from client.cancel_group(group, signal=signal, grace_s=grace_s)
    yield from one_by_one(jobs, lambda name: client.cancel(name, signal=signal, grace_s=grace_s))


def _tell(job: Job, *, as_json: bool) -> None:
    for warning in job.warnings:
        click.echo(f"tandem: warning: {job.name}: {printable(warning)}", err=True)
    if not as_json:
        click.echo(f"{job.name} {job.reason}")


def _await(client: Client, jobs: list[Job], *, grace_s: float, as_json: bool) -> None:
    deadline_s = grace_s + KILLED_S
    try:
        show_arrivals(client, jobs, until=ENDED, deadline_s=deadline_s, as_json=as_json)
    except UnavailableError as exc:
        raise _unwatched(exc) from exc
    except DeadlineError as exc:
        _require_answer(client, exc)
        raise DeadlineError(
            f"{exc}, the last {KILLED_S:g} s of it after SIGKILL: a process is stuck in the kernel "
            "or cannot be signalled; look at it with `ps -o pid,user,stat,wchan`"
        ) from exc


def _require_answer(client: Client, late: DeadlineError) -> None:
    """Raise unless the daemon answers: only then does its silence mean that a job still runs."""
    try:
        client.status()
    except (DeadlineError, UnavailableError) as exc:
        raise _unwatched(UnavailableError(f"{late}, and {exc}")) from exc


def _unwatched(failure: UnavailableError) -> UnavailableError:
    return UnavailableError(
        f"{failure}; nobody sends SIGKILL now, but the next daemon does to what attaches to it: "
        "start one, then `tandem wait`, or cancel again what has not ended"
    )
