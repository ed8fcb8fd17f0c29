"""`tandem ps`."""

import time

import click

from tandem._results import Job, PastJob
from tandem.cli._columns import Column, check_form, column, column_options, fields, print_items
from tandem.cli._jobs import require_user
from tandem.cli._output import json_option, open_client, print_json
from tandem.units import format_bytes, format_duration, format_energy


def _busy(job: Job) -> str:
    got = f"{job.share_ratio * 100:.0f}"
    return f"{got}/{job.share_target_ratio * 100:.0f}" if job.share_target_ratio else got


def _p99(job: Job) -> str:
    took = "-" if job.request_p99_ns is None else format_duration(job.request_p99_ns)
    if job.slo_p99_ns is not None:
        return f"{took}/{format_duration(job.slo_p99_ns)}"
    return took if job.marked_p99_ns is None else f"{took}/({format_duration(job.marked_p99_ns)})"


def _swapped(job: Job) -> str:
    if not (job.swapped_bytes or job.swappable or job.checkpoint):
        return "-"
    files = f" ({format_bytes(job.filed_bytes)} in files)" if job.filed_bytes else ""
    return f"{format_bytes(job.swapped_bytes)}{files}"


def quota(job: Job) -> str:
    """Format the memory limit of a job."""
    if job.memory_quota_bytes is None:
        return "-" if job.memory_percent is None else f"{job.memory_percent}%"
    return format_bytes(job.memory_quota_bytes)


def _memory(job: Job) -> str:
    waits = f" +{format_bytes(job.memory_wait_bytes)}" if job.memory_wait_bytes else ""
    return f"{format_bytes(job.resident_bytes)} / {quota(job)}{waits}"


def gpu_time(job: Job | PastJob) -> str:
    """Format the GPU time, with a ~ if it is an estimate."""
    shown = format_duration(job.gpu_time_ns)
    return f"~{shown}" if job.gpu_time_estimated else shown


def energy(job: Job | PastJob) -> str:
    """Format the energy attributed to a job."""
    return "-" if job.energy_mj is None else format_energy(job.energy_mj)


def _age(job: Job, now_ns: int) -> str:
    return format_duration(max(0, now_ns - job.create_time_ns)) if job.create_time_ns else "-"


def _rules(job: Job) -> str:
    return ",".join(finding.rule for finding in job.findings)


def _state(job: Job) -> str:
    return job.state or "?" if job.pause_in_ns is None else "pausing"


# Keyed by the names that `-o` takes. A column added here shows in `tandem top` as well.
COLUMNS: dict[str, Column[Job]] = {
    "job": column("JOB", lambda job: job.name, "name"),
    "name": column("NAME", lambda job: job.display_name or "-", "display_name"),
    "user": column("USER", lambda job: job.user or str(job.uid), "uid", "user"),
    "class": column("CLASS", lambda job: job.priority or "-", "priority"),
    "state": column("STATE", _state, "state"),
    "gpu": column("GPU", lambda job: job.gpu or "-", "gpu", is_figure=True),
    "busy": column("BUSY%", _busy, "share_ratio", "share_target_ratio", is_figure=True),
    "p99": column("P99", _p99, "request_p99_ns", "slo_p99_ns", "marked_p99_ns", is_figure=True),
    "mem": column(
        "MEM(res/quota)",
        _memory,
        *("resident_bytes", "memory_quota_bytes", "memory_percent", "memory_wait_bytes"),
    ),
    "swap": column("SWAP", _swapped, "swapped_bytes", "filed_bytes", is_figure=True),
    "wait": column(
        "WAIT", lambda job: format_duration(job.wait_time_ns), "wait_time_ns", is_figure=True
    ),
    "gpu-time": column("GPU-TIME", gpu_time, "gpu_time_ns", "gpu_time_estimated", is_figure=True),
    "energy": column("ENERGY", energy, "energy_mj", is_figure=True),
    "age": Column(header="AGE", text=_age, fields=fields("create_time_ns"), is_figure=True),
    "findings": Column(
        header="FINDINGS",
        text=lambda job, _now_ns: _rules(job) or "-",
        fields={"findings": _rules},
    ),
    "group": column("GROUP", lambda job: job.group or "-", "group"),
    "command": column("COMMAND", lambda job: job.command or "-", "command"),
}
SELDOM = ("energy",)  # shown if asked for


@click.command()
@click.option("-u", "--user", metavar="USER", help="List only jobs of this user.")
@click.option(
    "-a",
    "--all",
    "show_finished",
    is_flag=True,
    help="Also list jobs that ended in the last ten minutes, the newest 100 of each user.",
)
@column_options(COLUMNS)
@json_option
def ps(
    user: str | None,
    show_finished: bool,
    chosen: list[str] | None,
    form: str,
    as_json: bool,
) -> None:
    """List the jobs: which compute, which wait, and with how much memory.

    BUSY% is the job's share of the GPU in the last second. If --sm is a share of time, a slash and
    the part of that second that the job is owed follow: 30% means 30% of what higher classes left.
    P99 is the 99th percentile of request times in the last half minute. After a slash comes the
    objective of --slo or, without one and in brackets, what the program's own marks (`tandem.slo`)
    allow. In MEM, a + precedes the size that an allocation of the job waits for. SWAP is memory
    moved to the host, into its memory or into files; - means that the job's memory stays on the
    GPU. WAIT is how long the job's threads have waited for other jobs since it began; `tandem
    explain` says at what. A ~ before GPU-TIME means that over 1 % of it was split between jobs that
    ran together. FINDINGS come from the watchdog; `tandem explain` has the details. GROUP is shown
    if any job has one: from -G, or from the torchrun or Slurm step that started it. STATE `pausing`
    means that programs of the job were told of a pause and are not ready for it yet. ENERGY, shown
    with -o, is the part of the energy counted by the GPU's driver that falls to the time in which
    work of the job ran: attributed, not measured. It is - if the driver does not count energy, or
    nothing was read yet.

    \b
    Examples:
      tandem ps
      tandem ps -u $USER
      tandem ps -o job,state,mem,command
      tandem ps -a -o job,name,gpu-time,energy
      tandem ps -a --format csv > jobs.csv
      tandem ps --json | jq '.[] | select(.state == "waiting") | .name'
    """
    check_form(chosen, form, as_json=as_json)
    with open_client() as client:
        jobs = client.jobs(show_finished=show_finished)
    if user is not None:
        jobs = [job for job in jobs if user in (job.user, str(job.uid))]
        if not jobs:
            require_user(user)
    if as_json:
        print_json(jobs)
        return
    has_groups = any(job.group for job in jobs)
    left_out = () if form == "csv" else SELDOM if has_groups else (*SELDOM, "group")
    names = chosen or [name for name in COLUMNS if name not in left_out]
    print_items(jobs, [COLUMNS[name] for name in names], form=form, now_ns=time.time_ns())
