"""`tandem partition plan`."""

import click

from tandem._results import Gpu, GpuPlans, Plan, PlannedJob
from tandem._text import printable
from tandem.cli._output import json_option, open_client, print_json, print_table

_HEADER = ("JOB", "NAME", "SMS", "TURNS WITH", "PROGRESS", "P99", "SLOWER")
_RIGHT = ("SMS", "PROGRESS", "P99", "SLOWER")


@click.command()
@json_option
def plan(*, as_json: bool) -> None:
    """Say how the jobs on each GPU had best share it, and what is to be expected; do nothing.

    First the plan in force, where partition.planner is on, and what was measured under it. Then the
    best way to share time, space and both, best first: the fewest objectives missed, then the most
    progress, and of nearly as much the fairest.
    PROGRESS 1 is what a job gets done alone on the whole GPU, P99 what its requests take, with a !
    where that misses its --slo, and SLOWER how much longer its iterations are because of the jobs
    on other SMs. Above them is that of all jobs together, by the weights of their classes: as many
    as there are jobs at most, and the sum of the column only where all weights are alike. Below:
    what is not known, and how far forecasts were off.

    \b
    Examples:
      tandem partition plan
      tandem partition plan --json | jq '.[].plans[0]'
    """
    with open_client() as client:
        found = client.plans()
    if as_json:
        print_json(found)
        return
    for one in found:
        _show(one)


def _show(found: GpuPlans) -> None:
    click.echo(printable(title_of(found.gpu)))
    if not found.plans:
        click.echo("  no job is there")
    for number, one in enumerate(found.plans, 1):
        click.echo(printable(f"{number}. {_title(one)}"))
        print_table(_HEADER, [_row(job) for job in one.jobs], right=_RIGHT)
        for line in filter(None, map(_measured, one.jobs)):
            click.echo(printable(f"  {line}"))
    if found.planner:
        label = "in force, because" if any(one.in_force for one in found.plans) else "planner"
        click.echo(printable(f"  {label}: {found.planner}"))
    for note in found.notes:
        click.echo(printable(f"  {note}"))


def title_of(gpu: Gpu) -> str:
    """Which GPU, what it is, how it is shared."""
    name = gpu.product_name + (" (software)" if gpu.software else "")
    return f"gpu {gpu.name}: {name}, mode {gpu.mode}, {gpu.sm_count} SMs"


def _measured(job: PlannedJob) -> str:
    if job.measured_progress_ratio is None:
        return ""
    p99 = f", p99 {job.measured_p99_ns / 1e6:.4g} ms" if job.measured_p99_ns else ""
    return f"{job.job}: measured so far: progress {job.measured_progress_ratio:.2f}{p99}"


def _title(one: Plan) -> str:
    count = f"{one.missed} objective{'s' if one.missed > 1 else ''}"
    missed = f", {count} missed" if one.missed else ""
    how = "in force" if one.in_force else one.needs
    return f"{one.kind}: {one.progress:.2f} of progress by weight{missed}; {how}"


def _row(job: PlannedJob) -> tuple[str, ...]:
    p99 = "-" if job.p99_ns is None else f"{job.p99_ns / 1e6:.4g} ms"
    return (
        job.job,
        job.display_name or "-",
        f"{job.sms}",
        ",".join(job.shares_with) or "-",
        f"{job.progress_ratio:.2f}",
        f"{p99}!" if job.misses else p99,
        f"{job.slowdown - 1:.0%}" if job.slowdown > 1 else "-",
    )
