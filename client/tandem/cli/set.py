"""`tandem set`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tandem._changes import Changes
from tandem._results import Job
from tandem._text import printable
from tandem.cli import _completing
from tandem.cli._jobs import group_option
from tandem.cli._output import json_option, open_client, print_json
from tandem.errors import UsageError

if TYPE_CHECKING:
    from tandem._client import Client

_AT_START = ("isolation", "swappable", "checkpoint", "name", "group", "gpu", "env")
KEYS = tuple(Changes.__annotations__)


@click.command("set")
@click.argument(
    "words",
    nargs=-1,
    required=True,
    metavar="[JOB] KEY=VALUE...",
    shell_complete=_completing.jobs,
)
@group_option
@json_option
def set_(words: tuple[str, ...], group: str | None, as_json: bool) -> None:
    """Change what JOB, or with -G each job of a group, may use; it takes effect at once.

    Keys are priority, memory, memory_min, wait_memory, sm and slo, with the values of `tandem run`,
    and preemptible with yes, no or default (as configured for its class). The value none removes a
    limit. A memory limit below what the job holds takes nothing from it: it only gets no more.
    idle_release is a duration: a job started with --swappable that was idle for that long gives its
    memory to others until its next call; never exempts it, and default restores the configured
    value. persistent and ephemeral change what the policy lanes keeps for the job: more if there is
    room, less from the end of its iteration on. A warning tells of a change that has no effect at
    present.

    A group is changed as a whole, or not at all if one of its jobs may not have the change.
    memory_min, persistent and ephemeral are promises to one job, and are set job by job.

    \b
    Examples:
      tandem set j-7f3a priority=batch
      tandem set train memory=20GiB slo=none
      tandem set notebook idle_release=60s
      tandem set -G slurm:17.0 priority=batch
    """
    jobs, changes = (words[:1], words[1:]) if group is None else ((), words)
    if not changes:
        raise UsageError(
            f"nothing to change for {jobs[0]!r}; give KEY=VALUE, such as priority=batch"
        )
    wanted = parse_changes(changes)
    with open_client() as client:
        found = (
            change(client, jobs[0], wanted) if group is None else client.set_group(group, wanted)
        )
    for job in [found] if isinstance(found, Job) else found:
        whose = "" if group is None else f"{job.name}: "
        for warning in job.warnings:
            click.echo(f"tandem: warning: {whose}{printable(warning)}", err=True)
    if as_json:
        print_json(found)


def change(client: Client, job: str, wanted: dict[str, str]) -> Job:
    """Change one job by what `parse_changes` returned.

    Raises:
        TandemError: as `Client.set`.
    """
    said: dict[str, Any] = dict(wanted)
    if "preemptible" in said:
        said["preemptible"] = _yes_or_no(wanted["preemptible"])
    return client.set(job, **said)


def parse_changes(changes: tuple[str, ...]) -> dict[str, str]:
    """Split into keys and values; each key may occur once.

    Raises:
        UsageError: no `=`, an unknown key, or one given twice.
    """
    wanted: dict[str, str] = {}
    for change in changes:
        key, equals, value = change.partition("=")
        key = key.replace("-", "_")
        if key in _AT_START and equals:
            raise UsageError(
                f"{key!r} is fixed when a job starts; restart it with `tandem run --{key}`"
            )
        if not equals or not value:
            raise UsageError(f"{change!r} is not KEY=VALUE")
        if key not in KEYS:
            raise UsageError(f"cannot set {key!r}; known are {', '.join(KEYS)}")
        if key in wanted:
            raise UsageError(f"{key!r} is given twice")
        wanted[key] = value
    return wanted


def _yes_or_no(text: str) -> bool | str:
    if text == "default":
        return text
    if text not in ("yes", "no"):
        raise UsageError(f"preemptible {text!r} is none of yes, no and default")
    return text == "yes"
