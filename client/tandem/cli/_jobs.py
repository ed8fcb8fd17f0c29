"""Arguments and options that name the jobs a command acts on."""

from __future__ import annotations

import pwd
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import click

from tandem.cli import _completing
from tandem.errors import NotFoundError, TandemError, UsageError

_Result = TypeVar("_Result")
_Command = TypeVar("_Command", bound=Callable[..., object])


def jobs_argument(command: _Command) -> _Command:
    """Add an argument for one or more jobs, by number or name, and the option for a group."""
    argument = click.argument("jobs", nargs=-1, metavar="[JOB...]", shell_complete=_completing.jobs)
    return argument(group_option(command))


def group_option(command: _Command) -> _Command:
    """Add the option that names all jobs of a group at once."""
    return click.option(
        "-G",
        "--group",
        metavar="KEY",
        shell_complete=_completing.groups,
        help="Instead of JOB: all jobs of this group (GROUP in `tandem ps`), or none of them.",
    )(command)


def check_named(jobs: tuple[str, ...], group: str | None) -> None:
    """Raise UsageError unless there are jobs or a group, and not both."""
    if jobs and group is not None:
        raise UsageError(f"give either jobs ({' '.join(jobs)}) or the group '{group}', not both")
    if not jobs and group is None:
        raise UsageError("name a job, or a group with -G; `tandem ps` lists them")


def one_by_one(jobs: Sequence[str], change: Callable[[str], _Result]) -> Iterator[_Result]:
    """Change one job after the other, so that those before a failure can be shown.

    Raises:
        TandemError: the first failure; its text names the jobs that were not tried because of it.
    """
    for at, name in enumerate(jobs):
        try:
            yield change(name)
        except TandemError as exc:
            if rest := jobs[at + 1 :]:
                exc.args = (f"{exc}; not tried: {', '.join(rest)}",)
            raise


def require_user(user: str) -> None:
    """Tell a user without jobs from a user who does not exist.

    Raises:
        NotFoundError: this machine has no such user.
    """
    try:
        pwd.getpwuid(int(user)) if user.isascii() and user.isdigit() else pwd.getpwnam(user)
    except (KeyError, ValueError, OverflowError) as exc:
        raise NotFoundError(f"no user {user!r} on this machine") from exc
