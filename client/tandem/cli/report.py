"""`tandem report`."""

from pathlib import Path

import click
from click.core import ParameterSource

from tandem.cli._files import STANDARD_OUTPUT, written
from tandem.cli._output import json_option, open_client, print_json
from tandem.cli._parsed import Parsed
from tandem.errors import UsageError
from tandem.units import parse_duration

_DEFAULT = Path("tandem-report.html")


def parse_last(text: str, *, what: str = "last") -> int:
    """Parse a time into nanoseconds, above zero."""
    last_ns = parse_duration(text, what=what)
    if last_ns == 0:
        raise UsageError(f"{what} {text!r} is no time at all; write 90s or 10min")
    return last_ns


@click.command()
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=_DEFAULT,
    show_default=True,
    help="Page to write; - is standard output.",
)
@click.option(
    "--last",
    "last_ns",
    type=Parsed("TIME", parse_last),
    help="Show only this much time before now, such as 90s or 10min.",
)
@json_option
@click.pass_context
def report(context: click.Context, *, output: Path, last_ns: int | None, as_json: bool) -> None:
    """Draw memory and SMs of all jobs over the last minutes, and how they scale with SMs.

    Writes one HTML page that needs no network. For each GPU it shows what each job held there, how
    much of that was on the host, what allocations waited for, and how many SMs kernels held; below,
    what each job computed and when its memory was moved. The daemon keeps at least the newest 2,000
    changes of each job; those of ended jobs it keeps for ten minutes, for the newest 100 of each
    user. For jobs that still live, the page also shows how long an iteration takes on how many SMs,
    where more SMs stop paying off, and predictions against measurements (see `tandem partition
    show`).

    \b
    Examples:
      tandem report
      tandem report --last 5min -o memory.html
      tandem report --json | jq '.curves[].points[-1].resident_bytes'
    """
    from tandem.report.page import write
    from tandem.report.series import since

    if as_json and context.get_parameter_source("output") is not ParameterSource.DEFAULT:
        raise UsageError("--json prints, and -o names the page; give only one of them")
    with open_client() as client:
        history, partitions = client.memory_history(), client.partitions()
    if last_ns is not None:
        history = since(history, history.end_ns - last_ns)
    if as_json:
        print_json(history)
        return
    with written(output) as file:
        write(history, file, partitions=partitions)
    if output == STANDARD_OUTPUT:
        return
    count = len({curve.job for curve in history.curves})
    click.echo(f"wrote {output}: {count} job{'' if count == 1 else 's'}")
