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
    """Show how the jobs on each GPU had best share it, and what to expect; change nothing.

    If partition.planner is on, the plan in force comes first, with what was measured under it. Then
    come the best ways to share time, space, and both, best first: with the fewest missed
    objectives, then the most progress, and the fairest of those with nearly as much.

    PROGRESS 1 is what a job gets done alone on the whole GPU. P99 is what its requests take, with a
    ! if that misses its --slo. SLOWER is how much longer its iterations are because of jobs on
    other SMs. The title of a plan has the progress of all jobs together, by the weights of their
    classes: at most the number of jobs, and the sum of the column only if all weights are equal.
    Notes below say what is not known, and how far off forecasts were.

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
    """Describe a GPU: its name, what it is, and how it is shared."""
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
