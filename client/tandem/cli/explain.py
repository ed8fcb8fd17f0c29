"""`tandem explain`."""

import time

import click

from tandem._results import Explanation
from tandem._text import printable
from tandem.cli import _completing
from tandem.cli._output import json_option, open_client, print_json
from tandem.units import format_duration


@click.command()
@click.argument("job", shell_complete=_completing.jobs)
@json_option
def explain(job: str, as_json: bool) -> None:
    """Explain why JOB runs or waits, what it has waited for, and what was decided lately.

    Findings of the daemon's watchdog are included: a stall, starvation, a leak, a host that is too
    slow, thrashing; each with its start, why it matters, and what to do.

    \b
    Examples:
      tandem explain j-7f3a
      tandem explain train --json
    """
    with open_client() as client:
        found = client.explain(job)
    if as_json:
        print_json(found)
        return
    for line in lines(found):
        click.echo(printable(line))


def lines(found: Explanation) -> list[str]:
    """Format the explanation as lines of text."""
    text = [found.summary, *(f"  {line}" for line in found.lines)]
    waits = [f"{w.reason} {format_duration(w.total_ns)}" for w in found.waits if w.total_ns]
    text.append("  waited so far: " + (", ".join(waits) or "never"))
    for finding in found.findings:
        text += [
            f"{finding.rule}: {finding.what}",
            f"  since {_clock(finding.since_ns)}; {finding.why}",
            f"  {finding.advice}",
        ]
    if found.story:
        text += ["lately:", *(f"  {line}" for line in found.story)]
    return text


def _clock(since_ns: int) -> str:
    """Format as local time, with the date unless it is today."""
    then, now = time.localtime(since_ns / 1e9), time.localtime()
    return time.strftime("%H:%M:%S" if then[:3] == now[:3] else "%Y-%m-%d %H:%M:%S", then)
