"""The jobs that a command is about."""

from collections.abc import Callable
from typing import TypeVar

import click

_Command = TypeVar("_Command", bound=Callable[..., object])


def jobs_argument(command: _Command) -> _Command:
    """One job or several, by number or name."""
    return click.argument("jobs", nargs=-1, required=True, metavar="JOB...")(command)
