"""`tandem ps`."""

import pwd
import time

import click

from tandem._results import Job
from tandem.cli._output import json_option, open_client, print_json, print_table
from tandem.errors import NotFoundError
from tandem.units import format_bytes, format_duration

HEADER = (
    *("JOB", "NAME", "USER", "CLASS", "STATE", "GPU", "BUSY%", "P99"),
    *("MEM(res/quota)", "SWAP", "WAIT", "GPU-TIME", "AGE", "FINDINGS", "COMMAND"),
)
FIGURES = ("GPU", "BUSY%", "P99", "SWAP", "WAIT", "GPU-TIME", "AGE")


@click.command()
@click.option("-u", "--user", metavar="USER", help="Only jobs of this user.")
@click.option(
    "-a",
    "--all",
    "show_finished",
    is_flag=True,
    help="Also jobs that ended in the last ten minutes, the newest 100 of each user.",
)
@json_option
def ps(user: str | None, show_finished: bool, as_json: bool) -> None:
    """List the jobs: who computes, who waits, and with how much memory.

    BUSY% is the share of the GPU in the last second, and behind a slash what --sm owes the job of
    that second, where it is a share of time: 30% is of what higher classes left. P99 is what 99 of
    100 requests took no longer than in the last half minute, and behind a slash what --slo asks
    for. A + behind MEM is what an allocation of the job waits for. SWAP is memory that was moved to
    the host, in its memory or in files; - says that a job's memory stays on the GPU. WAIT is what
    threads of the job waited for other jobs since it began; `tandem explain` says at what. A ~
    before GPU-TIME says that over 1 % of it was split between jobs that ran together. FINDINGS are
    what the watchdog found; `tandem explain` tells more. GROUP is there when a job has one: that of
    -G, or of the torchrun or the step of Slurm that started it.

    \b
    Examples:
      tandem ps
      tandem ps -u $USER
      tandem ps --json | jq '.[] | select(.state == "waiting") | .name'
    """
    with open_client() as client:
        jobs = client.jobs(show_finished=show_finished)
    if user is not None:
        jobs = [job for job in jobs if user in (job.user, str(job.uid))]
        if not jobs:
            _require_user(user)
    if as_json:
        print_json(jobs)
        return
    now_ns = time.time_ns()
    lines = [(HEADER, "GROUP"), *((row(job, now_ns=now_ns), job.group or "-") for job in jobs)]
    has_groups = any(job.group for job in jobs)
    header, *rows = [(*line[:-1], *[group] * has_groups, line[-1]) for line, group in lines]
    print_table(header, rows, right=FIGURES)


def _busy(job: Job) -> str:
    got = f"{job.share_ratio * 100:.0f}"
    return f"{got}/{job.share_target_ratio * 100:.0f}" if job.share_target_ratio else got


def _p99(job: Job) -> str:
    took = "-" if job.request_p99_ns is None else format_duration(job.request_p99_ns)
    return took if job.slo_p99_ns is None else f"{took}/{format_duration(job.slo_p99_ns)}"


def _swapped(job: Job) -> str:
    if not (job.swapped_bytes or job.swappable or job.checkpoint):
        return "-"
    files = f" ({format_bytes(job.filed_bytes)} in files)" if job.filed_bytes else ""
    return f"{format_bytes(job.swapped_bytes)}{files}"


def _require_user(user: str) -> None:
    """Tell a user without jobs from one who does not exist.

    Raises:
        NotFoundError: this machine has no such user.
    """
    try:
        pwd.getpwuid(int(user)) if user.isascii() and user.isdigit() else pwd.getpwnam(user)
    except (KeyError, ValueError, OverflowError) as exc:
        raise NotFoundError(f"no user {user!r} on this machine") from exc


def quota(job: Job) -> str:
    """The limit of its memory."""
    if job.memory_quota_bytes is None:
        return "-" if job.memory_percent is None else f"{job.memory_percent}%"
    return format_bytes(job.memory_quota_bytes)


def row(job: Job, *, now_ns: int) -> tuple[str, ...]:
    """One line of the table."""
    waits = f" +{format_bytes(job.memory_wait_bytes)}" if job.memory_wait_bytes else ""
    gpu_time = format_duration(job.gpu_time_ns)
    return (
        job.name,
        job.display_name or "-",
        job.user or str(job.uid),
        job.priority or "-",
        job.state or "?",
        job.gpu or "-",
        _busy(job),
        _p99(job),
        f"{format_bytes(job.resident_bytes)} / {quota(job)}{waits}",
        _swapped(job),
        format_duration(job.wait_time_ns),
        f"~{gpu_time}" if job.gpu_time_estimated else gpu_time,
        format_duration(max(0, now_ns - job.create_time_ns)) if job.create_time_ns else "-",
        ",".join(finding.rule for finding in job.findings) or "-",
        job.command or "-",
    )
