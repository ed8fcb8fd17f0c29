"""`%load_ext tandem`: the line magic `%tandem` of IPython, for the job of its own kernel.

It covers only that job. Other commands are programs, such as `!tandem ps`, and `tandem run` would
replace the process that calls it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Protocol

from tandem.errors import NotFoundError, TandemError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tandem._client import Client

NAME = "tandem"
USAGE = (
    "%tandem alone says why this notebook runs or waits; %tandem KEY VALUE or %tandem "
    "KEY=VALUE... changes what it may use, such as %tandem priority latency; for all else there "
    "is the program: !tandem ps"
)
NO_JOB = (
    "this notebook is not a job of a daemon: start it with a kernel that `tandem kernelspec "
    "install` created, or start Jupyter under `tandem run`; with the variables of `tandem env`, "
    "the job begins with the first use of the GPU"
)


class Shell(Protocol):
    """The methods needed of IPython's InteractiveShell."""

    def register_magic_function(
        self, func: Callable[[str], None], magic_kind: str, magic_name: str
    ) -> None:
        """Make `%magic_name` call `func` with the rest of the line."""


def load_ipython_extension(ipython: Shell) -> None:
    """Define `%tandem`; IPython calls this for `%load_ext tandem`."""
    ipython.register_magic_function(_tandem, "line", NAME)


def _tandem(line: str) -> None:
    """Say why this notebook runs or waits, or change what it may use.

    Keys are those of `tandem set`.

    Examples:
      %tandem
      %tandem priority latency
      %tandem memory=20GiB idle_release=60s
    """
    try:
        for told in say(line.split()):
            sys.stdout.write(f"{told}\n")
    except TandemError as error:
        from IPython.core.error import UsageError as Told  # IPython shows it without a traceback

        raise Told(str(error)) from None


def say(words: list[str]) -> list[str]:
    """The lines that answer `%tandem WORDS`.

    Raises:
        UsageError: the words are not understood.
        NotFoundError: this process is part of no job.
        TandemError: as raised by `Client.set` and `Client.explain`.
    """
    from tandem._client import Client
    from tandem._text import printable
    from tandem.cli.explain import lines
    from tandem.cli.set import change, parse_changes

    wanted = parse_changes(_changes(words)) if words else {}
    with Client() as client:
        own = _own_job(client)
        if not wanted:
            return [printable(line) for line in lines(client.explain(own))]
        return [f"warning: {printable(line)}" for line in change(client, own, wanted).warnings]


def _changes(words: list[str]) -> tuple[str, ...]:
    from tandem.cli.set import KEYS

    if len(words) == 2 and words[0] in KEYS:
        return (f"{words[0]}={words[1]}",)
    if not all("=" in word for word in words):
        raise UsageError(USAGE)
    return tuple(words)


def _own_job(client: Client) -> str:
    from tandem._job import own_job

    try:
        return own_job(client)
    except NotFoundError:
        raise NotFoundError(NO_JOB) from None
