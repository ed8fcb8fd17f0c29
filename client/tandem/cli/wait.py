"""`tandem wait`."""

import click

from tandem._waits import ENDED, LONGEST_S, STATES
from tandem.cli._arrivals import show_arrivals
from tandem.cli._jobs import check_named, jobs_argument
from tandem.cli._output import json_option, open_client
from tandem.cli._parsed import Parsed
from tandem.units import parse_duration


@click.command()
@jobs_argument
@click.option(
    "--timeout",
    "timeout_ns",
    type=Parsed("TIME", parse_duration),
    help="Give up after this time: 30s, 10min; by default never.",
)
@click.option(
    "--for",
    "until",
    type=click.Choice(STATES),
    default=ENDED,
    show_default=True,
    help="What to wait for: a state of `tandem ps`, or the end.",
)
@json_option
def wait(
    *,
    jobs: tuple[str, ...],
    group: str | None,
    timeout_ns: int | None,
    until: str,
    as_json: bool,
) -> None:
    """Wait until each JOB has ended, or is in the state given by --for.

    A job that is in that state already is not waited for; one that ended more than ten minutes ago
    is no longer known. How a job's command ended is not known here: see the exit code of `tandem
    run`. With -G it waits for the jobs that are in the group when the wait begins.

    \b
    Exit code: 0 when all jobs are in that state, or
      3  no such job                     4  it ended before it was in that state
      7  the daemon went away, or hangs  8  --timeout passed

    \b
    Examples:
      tandem wait train
      tandem wait --timeout 10min j-7f3a j-81c0
      tandem wait -G slurm:17.0
      tandem wait --for running server && ./load-test
    """
    check_named(jobs, group)
    # gRPC mishandles very long deadlines: wait without one instead.
    deadline_s = None if timeout_ns is None or timeout_ns / 1e9 > LONGEST_S else timeout_ns / 1e9
    with open_client() as client:
        whom = jobs if group is None else client.group(group)
        show_arrivals(client, whom, until=until, deadline_s=deadline_s, as_json=as_json)
