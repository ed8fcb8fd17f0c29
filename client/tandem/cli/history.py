"""`tandem history`."""

import time
from typing import Any

import click

from tandem._results import PastJob
from tandem.cli._columns import Column, check_form, column, column_options, print_items
from tandem.cli._jobs import require_user
from tandem.cli._output import json_option, open_client, print_json
from tandem.cli._parsed import Parsed
from tandem.cli.ps import energy, gpu_time
from tandem.errors import UsageError
from tandem.units import format_bytes, format_duration, format_moment, parse_moment

FEW = 100  # jobs listed if neither --lines nor --since is given


def _moment(text: str, *, what: str) -> int:
    return parse_moment(text, now_ns=time.time_ns(), what=what)


def _elapsed(job: PastJob) -> str:
    return format_duration(max(0, job.end_time_ns - job.begin_time_ns))


def _gpus(job: PastJob) -> str:
    return ",".join(job.gpus)


def _findings(job: PastJob) -> str:
    return ",".join(job.findings)


# Keyed by the names that `-o` takes.
COLUMNS: dict[str, Column[PastJob]] = {
    "job": column("JOB", lambda job: job.name, "name"),
    "name": column("NAME", lambda job: job.display_name or "-", "display_name"),
    "user": column("USER", lambda job: job.user or str(job.uid), "uid", "user"),
    "class": column("CLASS", lambda job: job.priority or "-", "priority"),
    "group": column("GROUP", lambda job: job.group or "-", "group"),
    "gpus": Column(
        header="GPUS",
        text=lambda job, _now_ns: _gpus(job) or "-",
        fields={"gpus": _gpus},
        is_figure=True,
    ),
    "begin": column("BEGIN", lambda job: format_moment(job.begin_time_ns), "begin_time_ns"),
    "end": column("END", lambda job: format_moment(job.end_time_ns), "end_time_ns"),
    "elapsed": column("ELAPSED", _elapsed, "begin_time_ns", "end_time_ns", is_figure=True),
    "outcome": column("OUTCOME", lambda job: job.outcome, "outcome"),
    "gpu-time": column("GPU-TIME", gpu_time, "gpu_time_ns", "gpu_time_estimated", is_figure=True),
    "energy": column("ENERGY", energy, "energy_mj", is_figure=True),
    "wait": column(
        "WAIT", lambda job: format_duration(job.wait_time_ns), "wait_time_ns", is_figure=True
    ),
    "peak": column("PEAK", lambda job: format_bytes(job.peak_bytes), "peak_bytes", is_figure=True),
    "launches": column("LAUNCHES", lambda job: f"{job.launches:,}", "launches", is_figure=True),
    "iterations": column(
        "ITERATIONS", lambda job: f"{job.iterations:,}", "iterations", is_figure=True
    ),
    "refusals": column("REFUSALS", lambda job: f"{job.refusals:,}", "refusals", is_figure=True),
    "findings": Column(
        header="FINDINGS",
        text=lambda job, _now_ns: _findings(job) or "-",
        fields={"findings": _findings},
    ),
    "command": column("COMMAND", lambda job: job.command or "-", "command"),
}
_SELDOM = ("group", "begin", "energy", "launches", "iterations", "refusals")  # shown if asked for
USUAL = [name for name in COLUMNS if name not in _SELDOM]


@click.command()
@click.option("-u", "--user", metavar="USER", help="List only jobs of this user (name or uid).")
@click.option("-G", "--group", metavar="KEY", help="List only jobs of this group.")
@click.option(
    "--since",
    "since_ns",
    type=Parsed("TIME", _moment),
    help="List only jobs that ended since TIME: an age (2h, 7d) or a date (2026-01-31, "
    "2026-01-31T18:00), in local time unless it has an offset.",
)
@click.option(
    "--until",
    "until_ns",
    type=Parsed("TIME", _moment),
    help="List only jobs that ended before TIME, given likewise.",
)
@click.option(
    "-n",
    "--lines",
    "limit",
    metavar="N",
    type=click.IntRange(min=1),
    help=f"List only the newest N of them. By default {FEW}, or with --since all.",
)
@column_options(COLUMNS)
@json_option
def history(
    chosen: list[str] | None,
    form: str,
    as_json: bool,
    **which: Any,
) -> None:
    """List jobs that have ended, in the order in which they ended.

    Jobs that ended before the daemon was last started are included: it keeps as many of the newest
    as daemon.history says. A job is recorded from when it came to the daemon, so if the daemon was
    restarted during the job, only the part since then is here. A job whose processes ended while no
    daemon ran is missing. OUTCOME is cancelled if `tandem cancel` was used, else ended: the daemon
    does not see exit codes. WAIT is how long the job's threads waited for other jobs, PEAK the most
    device memory that it held, FINDINGS what the watchdog found. REFUSALS, shown with -o, counts
    how often the job was told that it is out of memory. ENERGY is as in `tandem ps`; the last part
    of a job that has just ended is added within a second.

    \b
    Examples:
      tandem history
      tandem history -u $USER --since 7d
      tandem history --since 2026-01-01 --until 2026-02-01 --format csv > january.csv
      tandem history -G sweep -o job,name,elapsed,gpu-time,peak,refusals
      tandem history --since 1d --json | jq '[.[].gpu_time_ns] | add / 1e9'
    """
    check_form(chosen, form, as_json=as_json)
    since_ns, until_ns = which["since_ns"], which["until_ns"]
    if since_ns is not None and until_ns is not None and since_ns >= until_ns:
        raise UsageError("--since is not before --until, so nothing lies between them")
    if which["limit"] is None and since_ns is None:
        which["limit"] = FEW
    with open_client() as client:
        jobs = client.history(**which)
    if which["user"] is not None and not jobs:
        require_user(which["user"])
    if as_json:
        print_json(jobs)
        return
    everything = [name for name in COLUMNS if name != "elapsed"]  # it repeats begin and end
    names = chosen or (everything if form == "csv" else USUAL)
    print_items(jobs, [COLUMNS[name] for name in names], form=form)
