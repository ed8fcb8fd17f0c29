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
    """Nanoseconds, more than none."""
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
    help="The page to write; - is standard output.",
)
@click.option(
    "--last",
    "last_ns",
    type=Parsed("TIME", parse_last),
    help="Only that much time before now, such as 90s or 10min.",
)
@json_option
@click.pass_context
def report(context: click.Context, *, output: Path, last_ns: int | None, as_json: bool) -> None:
    """Draw memory and SMs of all jobs over the last minutes, and how they scale with SMs.

    One HTML page that needs no network: for each GPU what each job held there, what of it was on
    the host, what allocations waited for, how many SMs kernels held, and below what each job
    computed and when its memory was moved. The daemon keeps the newest 2,000 changes or more of
    each job, and those of ended jobs for ten minutes, of the newest 100 of each user. Then, of the
    jobs that live, how fast an iteration is on how many SMs, where more stop paying, and what was
    predicted against what it is (see `tandem partition show`).

    \b
    Examples:
      tandem report
      tandem report --last 5min -o memory.html
      tandem report --json | jq '.curves[].points[-1].resident_bytes'
    """
    from tandem.report.page import write
    from tandem.report.series import since

    if as_json and context.get_parameter_source("output") is not ParameterSource.DEFAULT:
        raise UsageError("--json prints, and -o names the page; leave one of them out")
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
