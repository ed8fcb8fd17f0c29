"""`tandem partition`."""

from collections.abc import Iterator, Sequence

import click

from tandem._results import JobPart, Partition
from tandem.cli._output import json_option, open_client, print_json, print_table, printable

_HEADER = ("JOB", "NAME", "CLASS", "SM", "HAS", "KNEE", "LIMIT", "FITS", "PREDICTED", "ITERATION")
_RIGHT = ("SM", "HAS", "KNEE", "LIMIT", "FITS", "PREDICTED", "ITERATION")


@click.group()
def partition() -> None:
    """Look at how the SMs of GPUs are divided among jobs.

    \b
    Examples:
      tandem partition show
    """


@partition.command()
@json_option
def show(*, as_json: bool) -> None:
    """Show how each GPU is divided, and how many SMs its jobs have use for.

    SM is what a job asks for, HAS how many SMs its kernels may use. Beyond KNEE more SMs gain it
    little, LIMIT of them keep its --slo, and FITS is what it would get by both, beside the others;
    `rest` is what others leave. PREDICTED was said of as many SMs as it has before it ran on them,
    ITERATION is how long its iterations are. Below: what is not known of a job, and why.

    \b
    Examples:
      tandem partition show
      tandem partition show --json | jq '.[].jobs[].scaling'
    """
    with open_client() as client:
        found = client.partitions()
    if as_json:
        print_json(found)
        return
    for one in found:
        _show(one)


def _show(found: Partition) -> None:
    gpu = found.gpu
    name = gpu.product_name + (" (software)" if gpu.software else "")
    click.echo(printable(f"gpu {gpu.name}: {name}, mode {gpu.mode}, {gpu.sm_count} SMs"))
    if found.jobs:
        print_table(_HEADER, [_row(job) for job in found.jobs], right=_RIGHT)
    for line in _notes(found.jobs):
        click.echo(printable(line))


def _row(job: JobPart) -> tuple[str, ...]:
    share = f" ({job.owed_ratio:.0%} of time)" if job.owed_ratio else ""
    return (
        job.job,
        job.display_name or "-",
        job.priority,
        f"{job.asked_sms or '-'}",
        f"{job.given_sms or '-'}{share}",
        f"{job.scaling.knee_sms}" if job.scaling else "-",
        f"{job.required_sms or '-'}",
        f"{job.proposed_sms or 'rest'}",
        _milliseconds(job.predicted_ns),
        _milliseconds(job.measured_ns),
    )


def _milliseconds(duration_ns: int | None) -> str:
    return f"{duration_ns / 1e6:.4g} ms" if duration_ns else "-"


def _notes(jobs: Sequence[JobPart]) -> Iterator[str]:
    for job in jobs:
        yield f"  {job.job}: {job.why}{_told(job)}"


def _told(job: JobPart) -> str:
    curve = job.scaling
    if curve is None:
        return ""
    fitted = f", fitted with gamma {curve.gamma:.2f}" if curve.source == "probed" else ""
    return f" ({curve.source} from an iteration on {curve.recorded_sms} SMs{fitted})"
