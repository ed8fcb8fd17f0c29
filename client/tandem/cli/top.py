"""`tandem top`."""

import math
import sys
import time

import click

from tandem._text import printable
from tandem.cli._output import on_terminal, open_client, print_table
from tandem.cli._parsed import Parsed
from tandem.cli._top_rows import FIGURES, HEADER, Seen, gpu_line, row
from tandem.errors import BugError, StateError, UsageError

_LEAST_S, _MOST_S = 0.1, 3600.0


def parse_interval(text: str, *, what: str = "interval") -> float:
    """Parse the seconds between two updates."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not _LEAST_S <= seconds <= _MOST_S:
        raise UsageError(
            f"{what} {text!r} is not between {_LEAST_S:g} and {_MOST_S:g} seconds; write 2 or 0.5"
        )
    return seconds


@click.command()
@click.option("--once", is_flag=True, help="Print the view once, as text, and exit.")
@click.option(
    "--interval",
    type=Parsed("S", parse_interval),
    default="1",
    show_default=True,
    help="Seconds between two updates.",
)
@click.option("--readonly", is_flag=True, help="Disable the keys that pause and resume jobs.")
def top(*, once: bool, interval: float, readonly: bool) -> None:
    """Watch the jobs and GPUs of this machine.

    The columns are those of `tandem ps`, with a job's memory split up: RESIDENT on the GPU, SWAPPED
    to the host, its QUOTA, and WAITING, the size that an allocation waits for and its place in
    line. Below them is why the selected job runs or waits. Keys: arrows select, p pauses, r
    resumes, q or Ctrl-C quits. Except with --once it needs the extra [top].

    \b
    Examples:
      tandem top
      tandem top --interval 0.5 --readonly
      tandem top --once
    """
    if once:
        _print_once()
        return
    if not (on_terminal() and sys.stdin.isatty()):
        raise UsageError("tandem top needs a terminal; `tandem top --once` works without one")
    try:
        from tandem.top.app import Top
    except ModuleNotFoundError as exc:
        if (exc.name or "").partition(".")[0] not in ("textual", "rich"):
            raise
        raise StateError(
            f"tandem top needs {exc.name}, which is not installed; install Tandem with its [top] "
            "extra: pip install 'gpu-tandem[top]', or take `tandem top --once`"
        ) from exc
    with open_client() as client:
        client.status()  # if no daemon answers, say so before the screen changes
        view = Top(client, interval_s=interval, is_readonly=readonly)
        is_interrupted = view.run()
    if is_interrupted:
        raise click.Abort
    if view.return_code != 0:  # None, too: only a regular exit sets it
        raise BugError("the view failed, see above; this is a bug in tandem, please report it")


def _print_once() -> None:
    with open_client() as client:
        seen = Seen(jobs=tuple(client.jobs()), gpus=tuple(client.gpus()), now_ns=time.time_ns())
    for gpu in seen.gpus:
        click.echo(printable(gpu_line(gpu, seen.jobs)))
    print_table(HEADER, [row(job, now_ns=seen.now_ns) for job in seen.jobs], right=FIGURES)
