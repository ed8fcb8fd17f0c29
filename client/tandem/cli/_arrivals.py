"""How commands wait for jobs and show progress."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from tandem._waits import ENDED, arrivals
from tandem.cli._output import print_json
from tandem.cli._progress import progress

if TYPE_CHECKING:
    from tandem._client import Client
    from tandem._results import Job


def show_arrivals(
    client: Client,
    jobs: Sequence[str | Job],
    *,
    until: str,
    deadline_s: float | None,
    as_json: bool,
) -> None:
    """Wait for jobs; print a line as each one arrives, or those that did as JSON at the end."""
    arrived: list[Job] = []
    names = [job if isinstance(job, str) else job.name for job in jobs]
    try:
        with progress(is_long=True) as shown:
            shown.now(f"waiting: {', '.join(names)}")
            for job in arrivals(client, jobs, until=until, deadline_s=deadline_s):
                arrived.append(job)
                shown.now("")
                if not as_json:
                    click.echo(
                        f"{job.name} has ended" if until == ENDED else f"{job.name} is {until}"
                    )
                shown.now(f"waiting: {len(arrived)} of {len(names)} done")
    finally:
        if as_json:
            print_json(arrived)
